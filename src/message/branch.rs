//! Labels of the content blocks of fan-outs.

use rmcp::model::{ContentBlock, MetaObject};
use serde_json::Value;

/// The key of a content block's `_meta` that names its branch.
pub const BRANCH: &str = "mcp-composite/branch";
/// The key of a content block's `_meta` that names the tool of its branch, if the branch
/// is not named after it.
pub const TOOL: &str = "mcp-composite/tool";
/// The key of a content block's `_meta` that marks a text as the label of a branch.
///
/// Its value is `true`. The text names the branch for models, which do not see `_meta`. Labels are
/// not part of the branch's output: steps do not read them.
pub const LABEL: &str = "mcp-composite/label";

/// Returns the `_meta` of a content block.
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

/// Returns the branch that a content block names in its `_meta`.
pub(crate) fn branch_of(block: &ContentBlock) -> Option<&str> {
    meta_of(block)?.get(BRANCH)?.as_str()
}

/// Returns `true` if a content block is the label of a branch.
pub(crate) fn is_label(block: &ContentBlock) -> bool {
    block.as_text().is_some()
        && meta_of(block).is_some_and(|meta| meta.get(LABEL) == Some(&Value::Bool(true)))
}
