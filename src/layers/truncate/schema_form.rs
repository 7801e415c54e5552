//! Determines which parts of a value a schema requires, so that the value still matches the schema
//! after it is shortened.

use std::collections::{BTreeSet, HashMap, VecDeque};

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::schema::{
    keywords::{AppliesTo, subschemas},
    refs,
};

/// Maximum number of [forms](Form) that are built for a schema. If a part of the value has no form
/// because of this limit, the part is cut without regard to the schema.
const MAX_FORMS: usize = 4_096;
/// Maximum number of schemas that a form combines for a single position in a value.
const MAX_APPLYING_SCHEMAS: usize = 32;

/// The requirements for a position in a value, combined from all schemas that may apply to this
/// position. Determines how much of the value can be cut.
///
/// A form is only an approximation. It is too strict if only one of several alternative schemas
/// applies, and too lenient if a schema uses keywords that this module ignores. Callers must
/// therefore validate the shortened value.
#[derive(Debug, Default)]
pub(super) struct Form<'s> {
    /// Whether the value at this position must be kept whole.
    pub(super) is_fixed: bool,
    pub(super) min_length: usize,
    pub(super) min_items: usize,
    required: BTreeSet<&'s str>,
    members: HashMap<&'s str, FormId>,
    /// The form of the object members that are not in `members`.
    others: FormId,
    first_elements: Vec<FormId>,
    /// The form of the array elements after those in `first_elements`.
    elements: FormId,
}

/// The forms of all positions in a value.
#[derive(Debug)]
pub(super) struct Forms<'s> {
    /// The whole schema document. References in schemas are resolved in it.
    root: Option<&'s JsonObject>,
    forms: Vec<Form<'s>>,
    /// All forms that were created so far, indexed by the schemas that they combine. Each schema is
    /// identified by its address.
    made: HashMap<Vec<*const JsonObject>, FormId>,
    /// The forms that were created but not built yet. Each comes with the schemas that it will
    /// combine.
    waiting: VecDeque<(FormId, Vec<&'s JsonObject>)>,
}

/// The index of a form in [`Forms`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FormId(usize);

/// Schema keywords whose requirements a value usually no longer meets after it is cut, such as
/// `pattern`. A value with one of these keywords in its schema is kept whole.
const FIXING: [&str; 7] =
    ["const", "contains", "contentEncoding", "contentMediaType", "enum", "format", "pattern"];

// === impl Forms ===

impl<'s> Forms<'s> {
    /// Creates forms without any requirements. Values with these forms can be cut everywhere.
    pub(super) fn free() -> Forms<'static> {
        Forms {
            root: None,
            forms: vec![Form::default()],
            made: HashMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Creates the forms for all positions in a value, from the schema that the value must match.
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
        // The members of a form without requirements have no requirements, either.
        if form == FormId::default() { form } else { self.get(form).member(name) }
    }

    pub(super) fn element(&self, form: FormId, place: usize) -> FormId {
        if form == FormId::default() { form } else { self.get(form).element(place) }
    }

    /// Returns the ID of the form that combines the given schemas. If there is no such form,
    /// creates it and adds it to the forms that are waiting to be built.
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
                AppliesTo::Element(place) => {
                    first.resize_with(first.len().max(place + 1), Vec::new);
                    first[place].push(subschema.schema);
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

    /// Returns the given schemas and all schemas that they contain for the same position, such as
    /// the schemas in `allOf` and the targets of `$ref`. Returns each schema only once.
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

    fn member(&self, name: &str) -> FormId {
        self.members.get(name).copied().unwrap_or(self.others)
    }

    fn element(&self, place: usize) -> FormId {
        self.first_elements.get(place).copied().unwrap_or(self.elements)
    }
}
