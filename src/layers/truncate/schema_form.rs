//! The parts of a value that a schema requires to be kept.

use std::collections::{BTreeSet, HashMap, VecDeque};

use serde_json::{Map, Value};

/// Maximum number of forms of one schema. Further places have no requirements.
const MAX_FORMS: usize = 4_096;
/// Maximum number of schemas that apply to one place.
const MAX_APPLYING_SCHEMAS: usize = 32;

/// The combined requirements of all schemas that may apply to one place in a value.
///
/// They are too strict if only one of the schemas applies, and too lenient if the schemas use other
/// keywords. The shortened value is validated afterwards.
#[derive(Debug, Default)]
pub(super) struct Form<'s> {
    /// Whether the value must not be cut.
    pub(super) is_fixed: bool,
    pub(super) min_length: usize,
    pub(super) min_items: usize,
    required: BTreeSet<&'s str>,
    members: HashMap<&'s str, FormId>,
    /// The form of the members that are not named.
    others: FormId,
    first_elements: Vec<FormId>,
    /// The form of the elements after the first ones.
    elements: FormId,
}

/// The forms of all places in a value.
#[derive(Debug)]
pub(super) struct Forms<'s> {
    schema: &'s Value,
    forms: Vec<Form<'s>>,
    /// Forms by their schemas.
    made: HashMap<Vec<*const Value>, FormId>,
    /// Forms that are not built yet, and their schemas.
    waiting: VecDeque<(FormId, Vec<&'s Value>)>,
}

/// The index of a form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FormId(usize);

/// Keywords whose schemas apply to the same place.
const SAME_PLACE: [&str; 7] = ["allOf", "anyOf", "oneOf", "if", "then", "else", "$ref"];
/// Keywords of texts that would become invalid if cut.
const FIXING: [&str; 6] =
    ["const", "enum", "pattern", "format", "contentEncoding", "contentMediaType"];

// === impl Forms ===

impl<'s> Forms<'s> {
    /// Creates forms without requirements: everything may be cut.
    pub(super) fn free() -> Forms<'static> {
        Forms {
            schema: &Value::Null,
            forms: vec![Form::default()],
            made: HashMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Creates the forms of the values of a schema.
    pub(super) fn of(schema: &'s Value) -> Self {
        // The first form has no requirements, and the second is that of the whole value.
        let mut forms = Self { schema, ..Forms::free() };
        forms.id_of(vec![schema]);
        // Not recursive, because references may nest deeper than the stack allows.
        while let Some((id, schemas)) = forms.waiting.pop_front() {
            let schemas: Vec<_> = schemas.into_iter().filter_map(Value::as_object).collect();
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
        // No lookup without requirements.
        if form == FormId::default() { form } else { self.get(form).member(name) }
    }

    pub(super) fn element(&self, form: FormId, place: usize) -> FormId {
        if form == FormId::default() { form } else { self.get(form).element(place) }
    }

    /// Returns the form of these schemas, and queues it if it is new.
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

    fn form(&mut self, schemas: &[&'s Map<String, Value>]) -> Form<'s> {
        let all = |keyword: &'static str| schemas.iter().filter_map(move |it| it.get(keyword));
        let most = |keyword| {
            let counts = all(keyword).filter_map(Value::as_u64);
            counts.max().map_or(0, |count| usize::try_from(count).unwrap_or(usize::MAX))
        };
        let objects = |keyword| all(keyword).filter_map(Value::as_object).flatten();
        let is_fixed = FIXING.iter().any(|keyword| all(keyword).next().is_some())
            || all("contains").next().is_some();

        let mut named: HashMap<&'s str, Vec<&'s Value>> = HashMap::new();
        for (name, schema) in objects("properties") {
            named.entry(name).or_default().push(schema);
        }
        let mut others: Vec<_> = objects("patternProperties").map(|(_, schema)| schema).collect();
        named.values_mut().for_each(|schemas| schemas.extend(&others));
        others.extend(all("additionalProperties").chain(all("unevaluatedProperties")));

        let mut first: Vec<Vec<&'s Value>> = Vec::new();
        for schemas in all("prefixItems").filter_map(Value::as_array) {
            for (place, schema) in schemas.iter().enumerate() {
                if first.len() == place {
                    first.push(Vec::new());
                }
                first[place].push(schema);
            }
        }
        let behind: Vec<_> = all("items").chain(all("unevaluatedItems")).collect();
        let required = all("required").filter_map(Value::as_array).flatten();

        Form {
            is_fixed,
            min_length: most("minLength"),
            min_items: most("minItems"),
            required: required.filter_map(Value::as_str).collect(),
            members: named.into_iter().map(|(name, of)| (name, self.id_of(of))).collect(),
            others: self.id_of(others),
            first_elements: first.into_iter().map(|of| self.id_of(of)).collect(),
            elements: self.id_of(behind),
        }
    }

    /// Returns these schemas and all that they apply to the same place, each once.
    fn applying(&self, schemas: Vec<&'s Value>) -> Vec<&'s Value> {
        let mut applying: Vec<&'s Value> = Vec::new();
        let mut waiting = schemas;
        while let Some(schema) = waiting.pop() {
            let is_new = !applying.iter().any(|other| std::ptr::eq(*other, schema));
            let Some(keywords) = schema.as_object().filter(|_| is_new) else { continue };
            if applying.len() == MAX_APPLYING_SCHEMAS {
                break;
            }
            applying.push(schema);
            for keyword in SAME_PLACE {
                match keywords.get(keyword) {
                    Some(Value::Array(schemas)) => waiting.extend(schemas),
                    Some(Value::String(reference)) => waiting.extend(self.target(reference)),
                    Some(schema) => waiting.push(schema),
                    None => (),
                }
            }
        }
        applying
    }

    /// Resolves a reference within the same schema.
    fn target(&self, reference: &str) -> Option<&'s Value> {
        self.schema.pointer(reference.strip_prefix('#')?)
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
