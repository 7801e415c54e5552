//! Groups the Kubernetes objects of a YAML file by their kind.

use super::{
    import::Import,
    yaml::{Content, Node},
};

/// The `kind` of a Kubernetes object that defines a composite tool.
const DEFINITION: &str = "VirtualMCPCompositeToolDefinition";
/// The `kind` of a Kubernetes object that defines a virtual server.
const SERVER: &str = "VirtualMCPServer";
/// The `kind` of a Kubernetes object that contains the tool filter and the tool overrides of a
/// workload.
const TOOL_CONFIG: &str = "MCPToolConfig";
/// The values of `kind` for Kubernetes objects that define a workload, which becomes a backend.
const WORKLOADS: [&str; 3] = ["MCPServer", "MCPRemoteProxy", "MCPServerEntry"];

/// The Kubernetes objects in a file, grouped by their kind. Each object except for the server is a
/// pair of its name and its `spec`.
#[derive(Debug, Default)]
pub(super) struct Objects<'n> {
    /// The settings of the virtual server: the `spec` of a Kubernetes object, or a whole document
    /// without `kind`. `None` if the file contains no virtual server.
    pub(super) server: Option<&'n Node>,
    pub(super) definitions: Vec<(&'n str, &'n Node)>,
    pub(super) tool_configs: Vec<(&'n str, &'n Node)>,
    pub(super) workloads: Vec<(&'n str, &'n Node)>,
}

// === impl Objects ===

impl<'n> Objects<'n> {
    pub(super) fn sort(import: &mut Import<'_>, documents: &'n [Node]) -> Self {
        let mut objects = Self::default();
        if documents.iter().all(Node::is_null) {
            import.mistake("the file is empty", &(0..0));
        }
        for document in documents.iter().filter(|document| !document.is_null()) {
            objects.add(import, document);
        }
        objects
    }

    fn add(&mut self, import: &mut Import<'_>, document: &'n Node) {
        let Some(kind) = document.get("kind").and_then(Node::as_text) else {
            return self.add_server(import, document);
        };
        // The output of `kubectl get -o yaml`.
        if let ("List", Some(Content::List(items))) =
            (kind, document.get("items").map(|items| &items.content))
        {
            items.iter().for_each(|item| self.add(import, item));
            return;
        }
        let objects = match kind {
            SERVER => None,
            DEFINITION => Some(&mut self.definitions),
            TOOL_CONFIG => Some(&mut self.tool_configs),
            _ if WORKLOADS.contains(&kind) => Some(&mut self.workloads),
            // It only has the name of the workloads' group.
            "MCPGroup" => return,
            _ => {
                import.differs(format!("the kind `{kind}` is not imported"), &document.span);
                return;
            }
        };
        let name = document.get("metadata").and_then(|metadata| metadata.get("name")?.as_text());
        let (Some(name), Some(spec)) = (name, document.get("spec")) else {
            import.mistake("expected `metadata.name` and `spec`", &document.span);
            return;
        };
        match objects {
            None => self.add_server(import, spec),
            Some(objects) if objects.iter().any(|(other, _)| *other == name) => {
                import.mistake(format!("a second `{kind}` is called `{name}`"), &document.span);
            }
            Some(objects) => objects.push((name, spec)),
        }
    }

    fn add_server(&mut self, import: &mut Import<'_>, spec: &'n Node) {
        if self.server.is_some() {
            import.mistake("a second virtual server: expected one per file", &spec.span);
        }
        self.server = Some(spec);
    }
}

/// Returns the `spec` of the object with this name. Returns `None` if no object has this name.
pub(super) fn find<'n>(objects: &[(&str, &'n Node)], name: &str) -> Option<&'n Node> {
    objects.iter().find(|(own, _)| *own == name).map(|(_, spec)| *spec)
}
