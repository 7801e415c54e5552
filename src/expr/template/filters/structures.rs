//! Filters that flatten and merge nested arrays and objects.

use crate::expr::template::{
    arguments::Call,
    budget::{Budget, Evaluated, Failure},
    value::{Text, Value},
};

/// The filter `flatten`. Replaces arrays in a list with their elements, as in `[1, [2]]` to `[1,
/// 2]`. The argument `levels` limits the number of nesting levels that are removed. By default, all
/// are removed.
pub(super) fn flatten<'v>(
    Call { budget, value, mut arguments }: Call<'_, 'v>,
) -> Evaluated<Value<'v>> {
    let levels = arguments.integer("levels")?.unwrap_or(i64::MAX);
    arguments.end()?;
    let mut flat = Vec::new();
    push_elements(budget, &value, levels, &mut flat)?;
    budget.list(flat.into_iter().map(Ok))
}

fn push_elements<'v>(
    budget: &Budget,
    list: &Value<'v>,
    levels: i64,
    flat: &mut Vec<Value<'v>>,
) -> Evaluated<()> {
    budget.nested(|| {
        for element in list.iterate(budget)? {
            budget.step(1)?;
            let element = element?;
            if levels > 0 && element.is_list() {
                push_elements(budget, &element, levels - 1, flat)?;
            } else {
                flat.push(element);
            }
        }
        Ok(())
    })
}

/// The filter `merge`. Adds the members of other objects to an object. If several objects have a
/// member with the same name, the last object wins. With `deep=true`, such members are merged if
/// they are objects.
pub(super) fn merge<'v>(
    Call { budget, value, mut arguments }: Call<'_, 'v>,
) -> Evaluated<Value<'v>> {
    let is_deep = arguments.named_flag("deep")?.unwrap_or(false);
    let others = arguments.rest();
    arguments.end()?;
    others.iter().try_fold(value, |merged, other| {
        if !other.is_map() {
            let reason = format!("`merge` needs objects and not {}", other.kind());
            return Err(Failure::other(reason));
        }
        merged_with(budget, &merged, other, is_deep)
    })
}

fn merged_with<'v>(
    budget: &Budget,
    first: &Value<'v>,
    second: &Value<'v>,
    is_deep: bool,
) -> Evaluated<Value<'v>> {
    budget.nested(|| {
        let mut members = named_members(budget, first)?;
        for (name, member) in named_members(budget, second)? {
            let before = if is_deep { first.get(budget, &name)? } else { Value::Undefined };
            let member = if before.is_map() && member.is_map() {
                merged_with(budget, &before, &member, is_deep)?
            } else {
                member
            };
            // The last member with a name replaces the others.
            members.push((name, member));
        }
        budget.map(members)
    })
}

/// Returns the names and values of an object's members.
pub(super) fn named_members<'v>(
    budget: &Budget,
    object: &Value<'v>,
) -> Evaluated<Vec<(Text<'v>, Value<'v>)>> {
    let members = object.members(budget)?.map(|member| {
        let (name, member) = member?;
        Ok((name.to_name(budget)?, member))
    });
    members.collect()
}
