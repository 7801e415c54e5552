//! Access to the items of a list in a reply: tools, prompts, resources and resource templates.

use rmcp::model::{
    ErrorData, Prompt, Resource, ResourceTemplate, ServerResult, Skill, SkillResources, Tool,
};

use super::{ItemKind, Reply};

/// A mutable reference to an item of a list: a tool, prompt, resource or resource template.
#[derive(Debug)]
#[non_exhaustive]
pub enum ItemMut<'r> {
    /// A tool.
    Tool(&'r mut Tool),
    /// A prompt.
    Prompt(&'r mut Prompt),
    /// A resource.
    Resource(&'r mut Resource),
    /// A URI template of resources.
    ResourceTemplate(&'r mut ResourceTemplate),
}

// === impl ItemMut ===

impl ItemMut<'_> {
    /// Returns the kind of the item, such as a tool.
    #[must_use]
    pub const fn kind(&self) -> ItemKind {
        match self {
            Self::Tool(_) => ItemKind::Tool,
            Self::Prompt(_) => ItemKind::Prompt,
            Self::Resource(_) => ItemKind::Resource,
            Self::ResourceTemplate(_) => ItemKind::ResourceTemplate,
        }
    }

    /// Returns the name or URI that identifies the item in requests.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Tool(tool) => &tool.name,
            Self::Prompt(prompt) => &prompt.name,
            Self::Resource(resource) => &resource.uri,
            Self::ResourceTemplate(template) => &template.uri_template,
        }
    }
}

// === impl Reply ===

impl Reply {
    /// Calls `keep` for each item of a list, and removes the item if `keep` returns `false`. `keep`
    /// can also modify the item. Does nothing if the reply is not a list. The reply to
    /// `resources/directory/read` is a list of resources.
    pub fn retain_items(&mut self, mut keep: impl FnMut(ItemMut<'_>) -> bool) {
        match self.result_mut() {
            Some(ServerResult::ListToolsResult(list)) => {
                list.tools.retain_mut(|tool| keep(ItemMut::Tool(tool)));
            }
            Some(ServerResult::ListPromptsResult(list)) => {
                list.prompts.retain_mut(|prompt| keep(ItemMut::Prompt(prompt)));
            }
            Some(ServerResult::ListResourcesResult(list)) => {
                list.resources.retain_mut(|resource| keep(ItemMut::Resource(resource)));
            }
            Some(ServerResult::ListResourceTemplatesResult(list)) => {
                let templates = &mut list.resource_templates;
                templates.retain_mut(|template| keep(ItemMut::ResourceTemplate(template)));
            }
            _ => (),
        }
    }

    /// Removes the listed skills and files of skills for which `keep` returns `false`. `keep`
    /// receives the URI of the skill or file. Does nothing if the reply contains no skills.
    pub(crate) fn retain_skills(&mut self, keep: impl Fn(&str) -> bool) {
        let retain_files = |skill: &mut Skill| {
            if let SkillResources::Files(files) = &mut skill.resources {
                files.retain(|file| keep(&file.uri));
            }
        };
        match self.result_mut() {
            Some(ServerResult::ListSkillsResult(list)) => {
                list.skills.retain(|skill| keep(&skill.uri));
                list.skills.iter_mut().for_each(retain_files);
            }
            Some(ServerResult::GetSkillResult(result)) => retain_files(&mut result.skill),
            _ => (),
        }
    }

    /// Returns the kind of items in the list, such as tools. Returns `None` if the reply is not a
    /// list.
    #[must_use]
    pub fn lists(&self) -> Option<ItemKind> {
        self.page().map(|(kind, _)| kind)
    }

    /// Replaces a result that is not a list of this kind with an error, and returns `true`. Returns
    /// `false` if the reply is such a list, or if it is not a result.
    ///
    /// Layers remove hidden names only from lists. Some clients read a list even from a result of
    /// the wrong type, and would see the hidden names.
    pub(crate) fn refuse_other_than_list(&mut self, kind: ItemKind) -> bool {
        let is_other = self.result().is_some() && self.lists() != Some(kind);
        if is_other {
            let expected = format!("the server returned something other than a list of {kind}s");
            *self = ErrorData::internal_error(expected, None).into();
        }
        is_other
    }

    /// Returns the kind of items in the list, such as tools, if the reply is the last page of the
    /// list. Returns `None` for all other replies.
    #[must_use]
    pub fn ends_list(&self) -> Option<ItemKind> {
        self.page().and_then(|(kind, next)| next.is_none().then_some(kind))
    }

    /// Returns the kind of items in a page of a list, and the cursor of the next page. The cursor
    /// is `None` on the last page. Returns `None` if the reply is not a list.
    pub(crate) fn page(&self) -> Option<(ItemKind, Option<&str>)> {
        let (kind, next) = match self.result()? {
            ServerResult::ListToolsResult(list) => (ItemKind::Tool, &list.next_cursor),
            ServerResult::ListPromptsResult(list) => (ItemKind::Prompt, &list.next_cursor),
            ServerResult::ListResourcesResult(list) => (ItemKind::Resource, &list.next_cursor),
            ServerResult::ListResourceTemplatesResult(list) => {
                (ItemKind::ResourceTemplate, &list.next_cursor)
            }
            _ => return None,
        };
        Some((kind, next.as_deref()))
    }
}
