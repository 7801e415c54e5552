//! The `_meta` keys with which the result of a fan-out names the branch of each content block.

use rmcp::model::{ContentBlock, MetaObject};
use serde_json::Value;

/// The `_meta` key that names the branch from which a content block in the result of a composite
/// comes. A branch is a target of a fan-out, race or fallback, or a step of a pipeline or workflow.
pub const BRANCH: &str = "mcp-composite/branch";
/// The `_meta` key for the name of the tool that returned a content block in the result of a
/// composite. Set only if the name of the tool differs from the name under [`BRANCH`].
pub const TOOL: &str = "mcp-composite/tool";
/// The `_meta` key that marks a text block in the result of a fan-out as a label. Its value is
/// `true`.
///
/// A label contains the name of a target and precedes its content, so that a model, which does not
/// see `_meta`, can distinguish the targets. Expressions that read the output of a target do not
/// see its label.
pub const LABEL: &str = "mcp-composite/label";

/// Returns the `_meta` of a content block, or `None` if the block has none.
pub(crate) fn meta_of(block: &ContentBlock) -> Option<&MetaObject> {
    match block {
        ContentBlock::Text(text) => text.meta.as_ref(),
        ContentBlock::Image(image) => image.meta.as_ref(),
        ContentBlock::Audio(audio) => audio.meta.as_ref(),
        ContentBlock::Resource(resource) => resource.meta.as_ref(),
        ContentBlock::ResourceLink(link) => link.meta.as_ref(),
        _ => None,
    }
}

/// Returns the name of the branch from which a content block in the result of a composite comes.
/// Returns `None` if the `_meta` of the block contains no such name.
pub(crate) fn branch_of(block: &ContentBlock) -> Option<&str> {
    meta_of(block)?.get(BRANCH)?.as_str()
}

/// Returns `true` if a content block is a label: a text block with the name of the target from
/// which the following blocks come.
pub(crate) fn is_label(block: &ContentBlock) -> bool {
    block.as_text().is_some()
        && meta_of(block).is_some_and(|meta| meta.get(LABEL) == Some(&Value::Bool(true)))
}
