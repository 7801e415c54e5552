use rmcp::model::{
    ErrorData, Prompt, Resource, ResourceTemplate, ServerResult, Skill, SkillResources, Tool,
};

use super::{ItemKind, Reply};

/// An item of a list, to look at or to rewrite.
#[derive(Debug)]
#[non_exhaustive]
pub enum ItemMut<'r> {
    /// A tool.
    Tool(&'r mut Tool),
    /// A prompt.
    Prompt(&'r mut Prompt),
    /// A resource.
    Resource(&'r mut Resource),
    /// A template of the URIs of resources.
    ResourceTemplate(&'r mut ResourceTemplate),
}

// === impl ItemMut ===

impl ItemMut<'_> {
    /// What it is.
    #[must_use]
    pub const fn kind(&self) -> ItemKind {
        match self {
            Self::Tool(_) => ItemKind::Tool,
            Self::Prompt(_) => ItemKind::Prompt,
            Self::Resource(_) => ItemKind::Resource,
            Self::ResourceTemplate(_) => ItemKind::ResourceTemplate,
        }
    }

    /// The name or URI by which clients ask for it.
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
    /// Keeps the items of a list that `keep` wants, and lets it rewrite them; does
    /// nothing if the reply is no list.
    ///
    /// A directory of resources is a list of resources.
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

    /// Keeps the skills of a list, and the files of skills, whose URI `keep` wants; does
    /// nothing if the reply has no skills.
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

    /// What the reply is a list of, if it is one.
    #[must_use]
    pub fn lists(&self) -> Option<ItemKind> {
        self.page().map(|(kind, _)| kind)
    }

    /// Puts an error in the place of a result that is no list of these items, and tells
    /// whether it did.
    ///
    /// It could have hidden names in it, and clients that read it all the same.
    pub(crate) fn refuse_other_than_list(&mut self, kind: ItemKind) -> bool {
        let is_other = self.result().is_some() && self.lists() != Some(kind);
        if is_other {
            let expected = format!("the server did not answer with a list of {kind}s");
            *self = ErrorData::internal_error(expected, None).into();
        }
        is_other
    }

    /// Whether the reply is the last page of a list, and of what.
    #[must_use]
    pub fn ends_list(&self) -> Option<ItemKind> {
        self.page().and_then(|(kind, next)| next.is_none().then_some(kind))
    }

    /// A page of a list: of what, and the cursor of the next one.
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
