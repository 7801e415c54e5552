//! Determines which parts of a value a schema requires, so that the value still matches the schema
//! after it is shortened.

use std::collections::{BTreeSet, HashMap, VecDeque};

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::schema::{
    keywords::{AppliesTo, subschemas},
    refs,
};

/// Maximum number of [forms](Form) for one schema. Parts of a value for which no form can be
/// created are cut without regard to the schema.
const MAX_FORMS: usize = 4_096;
/// Maximum number of schemas whose requirements one [`Form`] combines. Further schemas are ignored.
const MAX_APPLYING_SCHEMAS: usize = 32;

/// The combined requirements of all schemas that may apply to the same part of a value. They
/// determine how much of this part can be cut.
///
/// A form is an approximation. It is too strict if only one of several alternative schemas applies.
/// It is too lenient if a schema uses keywords that this module ignores. Callers must therefore
/// validate the shortened value.
#[derive(Debug, Default)]
pub(super) struct Form<'s> {
    /// `true` if the part must not be cut.
    pub(super) is_fixed: bool,
    pub(super) min_length: usize,
    pub(super) min_items: usize,
    required: BTreeSet<&'s str>,
    members: HashMap<&'s str, FormId>,
    /// The requirements for object members whose names are not in `members`.
    others: FormId,
    first_elements: Vec<FormId>,
    /// The requirements for array elements that have no entry in `first_elements`.
    elements: FormId,
}

/// All forms of a schema. Each [`FormId`] is an index into this list.
#[derive(Debug)]
pub(super) struct Forms<'s> {
    /// The whole schema, in which references such as `#/$defs/Name` are resolved. `None` if the
    /// schema is not an object.
    root: Option<&'s JsonObject>,
    forms: Vec<Form<'s>>,
    /// Maps each combination of schemas to its form, so that there is only one form for the same
    /// schemas. The key consists of the addresses of the schemas.
    made: HashMap<Vec<*const JsonObject>, FormId>,
    /// The forms that have an ID but are not built yet, each with the schemas that it combines.
    waiting: VecDeque<(FormId, Vec<&'s JsonObject>)>,
}

/// The index of a form in [`Forms`]. The default is the form without requirements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FormId(usize);

/// Schema keywords that a cut value usually violates, such as `pattern`. A value with such a
/// keyword in its schema is not cut.
const FIXING: [&str; 7] =
    ["const", "contains", "contentEncoding", "contentMediaType", "enum", "format", "pattern"];

// === impl Forms ===

impl<'s> Forms<'s> {
    /// Creates a single form without requirements, with which all parts of a value can be cut.
    pub(super) fn free() -> Forms<'static> {
        Forms {
            root: None,
            forms: vec![Form::default()],
            made: HashMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Creates the forms of a schema: one for the whole value, and one for each part that the
    /// schema describes.
    pub(super) fn of(schema: &'s Value) -> Self {
        // The first form has no requirements. The second is the form of the whole value.
        let mut forms = Self { root: schema.as_object(), ..Forms::free() };
        forms.id_of(vec![schema]);
        // Build the forms in a loop instead of recursively, because deeply nested references could
        // overflow the stack.
        while let Some((id, schemas)) = forms.waiting.pop_front() {
            forms.forms[id.0] = forms.form(&schemas);
        }
        forms
    }

    pub(super) fn root(&self) -> FormId {
        FormId(1.min(self.forms.len() - 1))
    }

    pub(super) fn get(&self, form: FormId) -> &Form<'s> {
        &self.forms[form.0]
    }

    pub(super) fn member(&self, form: FormId, name: &str) -> FormId {
        let form = self.get(form);
        form.members.get(name).copied().unwrap_or(form.others)
    }

    pub(super) fn element(&self, form: FormId, index: usize) -> FormId {
        let form = self.get(form);
        form.first_elements.get(index).copied().unwrap_or(form.elements)
    }

    /// Returns the ID of the form that combines `schemas`. If there is no such form, creates an ID
    /// and schedules the form to be built. Returns the ID of the form without requirements if the
    /// maximum number of forms is reached.
    fn id_of(&mut self, schemas: Vec<&'s Value>) -> FormId {
        let schemas = self.applying(schemas);
        let key: Vec<_> = schemas.iter().map(|schema| std::ptr::from_ref(*schema)).collect();
        if schemas.is_empty() {
            return FormId::default();
        }
        if let Some(form) = self.made.get(&key) {
            return *form;
        }
        if self.forms.len() == MAX_FORMS {
            return FormId::default();
        }
        let id = FormId(self.forms.len());
        self.made.insert(key, id);
        self.forms.push(Form::default());
        self.waiting.push_back((id, schemas));
        id
    }

    fn form(&mut self, schemas: &[&'s JsonObject]) -> Form<'s> {
        let all = |keyword: &'static str| schemas.iter().filter_map(move |it| it.get(keyword));
        let most = |keyword| {
            let counts = all(keyword).filter_map(Value::as_u64);
            counts.max().map_or(0, |count| usize::try_from(count).unwrap_or(usize::MAX))
        };
        let mut named: HashMap<&'s str, Vec<&'s Value>> = HashMap::new();
        let mut matching = Vec::new();
        let mut others = Vec::new();
        let mut first: Vec<Vec<&'s Value>> = Vec::new();
        let mut behind = Vec::new();
        for subschema in schemas.iter().flat_map(|schema| subschemas(schema)) {
            match subschema.applies_to {
                AppliesTo::Member(name) => named.entry(name).or_default().push(subschema.schema),
                AppliesTo::Members if subschema.keyword == "patternProperties" => {
                    matching.push(subschema.schema);
                }
                AppliesTo::Members => others.push(subschema.schema),
                AppliesTo::Element(index) => {
                    first.resize_with(first.len().max(index + 1), Vec::new);
                    first[index].push(subschema.schema);
                }
                AppliesTo::Elements => behind.push(subschema.schema),
                AppliesTo::Whole | AppliesTo::Names | AppliesTo::Content => (),
            }
        }
        named.values_mut().for_each(|schemas| schemas.extend(&matching));
        others.extend(matching);
        let required = all("required").filter_map(Value::as_array).flatten();

        Form {
            is_fixed: FIXING.iter().any(|keyword| all(keyword).next().is_some()),
            min_length: most("minLength"),
            min_items: most("minItems"),
            required: required.filter_map(Value::as_str).collect(),
            members: named.into_iter().map(|(name, of)| (name, self.id_of(of))).collect(),
            others: self.id_of(others),
            first_elements: first.into_iter().map(|of| self.id_of(of)).collect(),
            elements: self.id_of(behind),
        }
    }

    /// Returns `schemas`, and all schemas that apply to the same value as one of them. Examples are
    /// the schemas in its `allOf`, and the target of its `$ref`. Returns each schema once.
    fn applying(&self, schemas: Vec<&'s Value>) -> Vec<&'s JsonObject> {
        let mut applying: Vec<&'s JsonObject> = Vec::new();
        let mut waiting: Vec<_> = schemas.into_iter().filter_map(Value::as_object).collect();
        while let Some(schema) = waiting.pop() {
            if applying.iter().any(|other| std::ptr::eq(*other, schema)) {
                continue;
            }
            if applying.len() == MAX_APPLYING_SCHEMAS {
                break;
            }
            applying.push(schema);
            let in_place = subschemas(schema).filter(|subschema| {
                // A schema under `not` requires nothing of the value.
                subschema.applies_to == AppliesTo::Whole && subschema.keyword != "not"
            });
            waiting.extend(in_place.filter_map(|subschema| subschema.schema.as_object()));
            waiting.extend(self.root.and_then(|root| refs::target(root, schema)));
        }
        applying
    }
}

// === impl Form ===

impl Form<'_> {
    pub(super) fn requires(&self, member: &str) -> bool {
        self.required.contains(member)
    }

    pub(super) fn requires_any(&self) -> bool {
        !self.required.is_empty()
    }
}
