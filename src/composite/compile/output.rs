//! Compiles output blocks. An output block builds the result of a pipeline or workflow from the
//! outputs of its steps.

use rmcp::model::JsonObject;
use serde_json::{Value, json};

use super::{Kind, mistakes::DefinitionPath};
use crate::{
    composite::output::{JsonType, Output, OutputProperty, PropertySource},
    engine::output as engine,
    expr::{Expression, PathSegment, ScopeNames},
    suggest::nearest,
};

/// The maximum nesting depth of the properties that an output block defines.
const MAX_OUTPUT_DEPTH: usize = 10;

pub(super) fn compile(
    output: &Output,
    composite: &str,
    names: &ScopeNames<'_>,
    remarks: &mut Vec<String>,
    at: &mut DefinitionPath<'_>,
) -> engine::Output {
    let mut at = at.within(["output"]);
    if output.properties.is_empty() {
        at.push(["properties"], Kind::NoProperties);
    }
    let known: Vec<_> = output.properties.iter().map(|(name, _)| name.as_str()).collect();
    for (index, name) in output.required.iter().enumerate() {
        if !known.contains(&name.as_str()) {
            let near = nearest(name, &known).map(str::to_owned);
            let kind = Kind::UnknownProperty { name: name.clone(), near };
            at.push::<PathSegment>(["required".into(), index.into()], kind);
        }
    }
    let content = content(output, names, &mut at);
    let mut compiler = Properties { composite, names, remarks, path: Vec::new() };
    engine::Output {
        properties: compiler.compile(&output.properties, &mut at),
        required: output.required.clone(),
        content,
    }
}

/// Compiles the `content` list of an output block: the ids of steps whose content blocks are added
/// to the result. Adds an error for each unknown or repeated id.
fn content(
    output: &Output,
    names: &ScopeNames<'_>,
    at: &mut DefinitionPath<'_>,
) -> Vec<Expression> {
    let mut content = Vec::with_capacity(output.content.len());
    for (index, step) in output.content.iter().enumerate() {
        let mut at = at.within::<PathSegment>(["content".into(), index.into()]);
        if !names.steps.contains(&step.as_str()) {
            let near = nearest(step, names.steps).map(str::to_owned);
            at.push::<&str>([], Kind::UnknownStep { step: step.clone(), near });
        } else if output.content[..index].contains(step) {
            at.push::<&str>([], Kind::DuplicateContent { step: step.clone() });
        } else {
            // Blocks of a step that was skipped are omitted.
            let blocks = format!("$steps{}.blocks?", PathSegment::from(step.as_str())).into();
            match Expression::parse_in(&blocks, names) {
                Ok(expression) => content.push(expression),
                Err(errors) => at.push_all("", &errors),
            }
        }
    }
    content
}

/// Returns the JSON Schema of the object that an output block builds. The composite advertises it
/// as its output schema.
pub(super) fn schema(output: &Output) -> JsonObject {
    object_schema(&output.properties, &output.required)
}

fn object_schema(properties: &[(String, OutputProperty)], required: &[String]) -> JsonObject {
    let properties = properties.iter().map(|(name, property)| {
        let mut schema = match &property.source {
            PropertySource::Properties(properties) => object_schema(properties, &[]),
            PropertySource::Value(..) => JsonObject::new(),
        };
        let kind = property.source.kind().name();
        let kind = match &property.default {
            Some(Value::Null) => json!([kind, "null"]),
            _ => kind.into(),
        };
        schema.insert("type".to_owned(), kind);
        if let Some(description) = &property.description {
            schema.insert("description".to_owned(), description.as_str().into());
        }
        (name.clone(), Value::Object(schema))
    });
    let mut schema = JsonObject::new();
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), Value::Object(properties.collect()));
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.into());
    }
    schema
}

struct Properties<'c> {
    composite: &'c str,
    names: &'c ScopeNames<'c>,
    remarks: &'c mut Vec<String>,
    /// The path of the property that is being compiled: the names of the properties that contain
    /// it, and its own name.
    path: Vec<String>,
}

// === impl Properties ===

impl Properties<'_> {
    fn compile(
        &mut self,
        properties: &[(String, OutputProperty)],
        at: &mut DefinitionPath<'_>,
    ) -> Vec<(String, engine::Property)> {
        let mut compiled = Vec::with_capacity(properties.len());
        for (name, property) in properties {
            let mut at = at.within(["properties", name]);
            if compiled.iter().any(|(other, _)| other == name) {
                at.push::<&str>([], Kind::DuplicateProperty { name: name.clone() });
            }
            self.path.push(name.clone());
            if self.path.len() > MAX_OUTPUT_DEPTH {
                at.push::<&str>([], Kind::PropertiesTooDeep { max: MAX_OUTPUT_DEPTH });
            } else if let Some(property) = self.property(property, &mut at) {
                compiled.push((name.clone(), property));
            }
            self.path.pop();
        }
        compiled
    }

    fn property(
        &mut self,
        property: &OutputProperty,
        at: &mut DefinitionPath<'_>,
    ) -> Option<engine::Property> {
        let path = self.path.join(".");
        if property.description.as_ref().is_none_or(|text| text.trim().is_empty()) {
            let composite = self.composite;
            self.remarks
                .push(format!("composite `{composite}`: `output.{path}` has no description"));
        }
        let kind = property.source.kind();
        let source = match &property.source {
            PropertySource::Value(_, value) => match Expression::parse_in(value, self.names) {
                Ok(expression) => engine::Source::Value(expression),
                Err(errors) => {
                    at.push_all("value", &errors);
                    return None;
                }
            },
            PropertySource::Properties(properties) => {
                engine::Source::Properties(self.compile(properties, at))
            }
        };
        if let Some(default) = &property.default
            && !fits(default, kind)
        {
            at.push(["default"], Kind::DefaultType { kind: kind.name() });
        }
        Some(engine::Property { kind, source, default: property.default.clone() })
    }
}

/// Returns `true` if `value`, the default of an output property, has the declared type or is null.
/// As in JSON Schema, a number without a fractional part counts as an integer.
fn fits(value: &Value, declared: JsonType) -> bool {
    let is_whole = || value.is_number() && declared.convert(value).is_some();
    value.is_null() || declared.includes(value) || declared == JsonType::Integer && is_whole()
}
