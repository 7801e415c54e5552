//! The `_meta` keys that name the branch of each content block in a fan-out result.

use rmcp::model::{ContentBlock, MetaObject};
use serde_json::Value;

/// The `_meta` key that names the branch from which a content block comes.
pub const BRANCH: &str = "mcp-composite/branch";
/// The `_meta` key that names the tool from which a content block comes. It is only set if the
/// branch has a different name than its tool.
pub const TOOL: &str = "mcp-composite/tool";
/// The `_meta` key that marks a text block as the label of a branch.
///
/// The value of the key is `true`. The text of a label names the branch for models, because models
/// do not see `_meta`. A label is not part of the branch's output, so later steps do not read it.
pub const LABEL: &str = "mcp-composite/label";

/// Returns the `_meta` of a content block. Returns `None` if the block has no `_meta`.
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

/// Returns the branch name in the `_meta` of a content block. Returns `None` if no branch is named.
pub(crate) fn branch_of(block: &ContentBlock) -> Option<&str> {
    meta_of(block)?.get(BRANCH)?.as_str()
}

/// Returns `true` if a content block is the label of a branch.
pub(crate) fn is_label(block: &ContentBlock) -> bool {
    block.as_text().is_some()
        && meta_of(block).is_some_and(|meta| meta.get(LABEL) == Some(&Value::Bool(true)))
}
