//! From CEL's syntax tree to the one that is run: names are checked, operators become exact ones, and everything that
//! can be large is charged for.

use cel::common::ast::CallExpr;
use cel::common::ast::ComprehensionExpr;
use cel::common::ast::EntryExpr;
use cel::common::ast::Expr;
use cel::common::ast::IdedExpr;
use cel::common::ast::ListExpr;
use cel::common::ast::LiteralValue;
use cel::common::ast::SelectExpr;
use cel::common::ast::SourceInfo;
use cel::common::ast::operators;
use cel::common::types::CelInt;
use cel::parser::Parser;

use super::Known;
use super::RuleError;
use super::functions;
use super::functions::ENTRIES;
use super::value::Boxed;
use super::value::Exact;
use crate::json::decimal::Decimal;
use crate::nearest::did_you_mean;

/// How deep a compiled rule may nest, operators in a row included. It is run by recursion, on the stack of a worker: a
/// level takes some 40 KB of it where the evaluator is not optimized.
const LEVELS_MAX: usize = 32;
/// How deep a rule may nest as it is read, where members of members count too.
const DEPTH_MAX: usize = 100;
/// How deep its brackets may nest.
const BRACKETS_MAX: u16 = 96;
/// Bytes of a rule.
pub(super) const SOURCE_MAX: usize = 4 << 10;
/// Memory that reading a rule may take for its stack; what is not touched costs nothing.
const STACK_BYTES: usize = 256 << 20;
/// Steps that a turn of a loop takes besides those of its body.
const TURN_STEPS: u64 = 2;

/// The operators of CEL that are compiled to exact ones.
const EXACT: [(&str, &str); 13] = [
    (operators::ADD, "@add"),
    (operators::SUBSTRACT, "@subtract"),
    (operators::MULTIPLY, "@multiply"),
    (operators::DIVIDE, "@divide"),
    (operators::MODULO, "@remainder"),
    (operators::NEGATE, "@negate"),
    (operators::EQUALS, "@equal"),
    (operators::NOT_EQUALS, "@unequal"),
    (operators::LESS, "@less"),
    (operators::LESS_EQUALS, "@at_most"),
    (operators::GREATER, "@greater"),
    (operators::GREATER_EQUALS, "@at_least"),
    (operators::IN, "@within"),
];
/// Those that CEL runs itself: they never look at a number.
const PLAIN: [&str; 6] = [
    operators::CONDITIONAL,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::INDEX,
    operators::NOT_STRICTLY_FALSE,
];
/// What the macros of CEL call their result; it cannot be written in a rule.
const RESULT: &str = "@result";

/// A rule that can be run.
pub(super) struct Compiled {
    pub(super) expression: IdedExpr,
    /// What `@0`, `@1` and so on stand for.
    pub(super) constants: Vec<Boxed<'static>>,
}

/// Compiles a rule.
pub(super) fn compile(source: &str, known: &Known) -> Result<Compiled, RuleError> {
    if source.len() > SOURCE_MAX {
        let message = format!("a rule of {} bytes; at most {SOURCE_MAX}", source.len());
        return Err(RuleError::new("", 0, message));
    }
    // The parser bounds brackets alone and calls itself for every operator in a row, up to two thousand of them in a rule
    // of this size. So it gets a stack that holds them.
    let unread = |_| RuleError::new(source, 0, "there is no thread to read it on".to_owned());
    std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().stack_size(STACK_BYTES);
        let reader = reader.spawn_scoped(scope, || parsed(source, known)).map_err(unread)?;
        reader.join().unwrap_or_else(|_| Err(RuleError::new(source, 0, "it cannot be read".to_owned())))
    })
}

fn parsed(source: &str, known: &Known) -> Result<Compiled, RuleError> {
    let (expression, places) =
        Parser::new().max_recursion_depth(BRACKETS_MAX).parse_with_source_info(source).map_err(|errors| {
            let Some(first) = errors.errors.first() else {
                return RuleError::new(source, 0, "it cannot be read".to_owned());
            };
            if first.msg.contains("Recursion limit") {
                let at = usize::try_from(first.pos.0).unwrap_or(0); // then it tells the offset, not the line
                return RuleError::new(source, at, format!("it nests deeper than {LEVELS_MAX} levels"));
            }
            let message = first.msg.trim_start_matches("Syntax error: ");
            let message = message.lines().next().unwrap_or_default();
            RuleError::at_line(source, first.pos, lower_first(message))
        })?;
    let mut compiler = Compiler { source, known, places, scope: Vec::new(), constants: Vec::new() };
    let expression = compiler.compiled(expression, 0)?;
    if levels(&expression) > LEVELS_MAX {
        return Err(RuleError::new(source, 0, format!("it nests deeper than {LEVELS_MAX} levels")));
    }
    Ok(Compiled { expression, constants: compiler.constants })
}

fn lower_first(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_lowercase().chain(characters).collect()).unwrap_or_default()
}

struct Compiler<'s> {
    source: &'s str,
    known: &'s Known,
    places: SourceInfo,
    /// The names that loops bind, the innermost last.
    scope: Vec<String>,
    constants: Vec<Boxed<'static>>,
}

impl Compiler<'_> {
    fn error(&self, id: u64, message: String) -> RuleError {
        let at = self.places.offset_for(id).map_or(0, |(start, _)| start as usize);
        RuleError::new(self.source, at, message)
    }

    fn compiled(&mut self, expression: IdedExpr, depth: usize) -> Result<IdedExpr, RuleError> {
        let IdedExpr { id, expr } = expression;
        if depth > DEPTH_MAX {
            return Err(self.error(id, format!("it nests deeper than {LEVELS_MAX} levels")));
        }
        let expr = match expr {
            Expr::Literal(literal) => self.literal(id, literal)?,
            Expr::Ident(name) => {
                if !self.is_bound(&name) {
                    self.check_variable(id, &name)?;
                }
                Expr::Ident(name)
            }
            Expr::Select(select) => {
                self.check_member(id, &select.operand, &select.field)?;
                let operand = Box::new(self.compiled(*select.operand, depth + 1)?);
                Expr::Select(SelectExpr { operand, ..select })
            }
            Expr::List(list) => {
                let mut elements = Vec::with_capacity(list.elements.len());
                for element in list.elements {
                    elements.push(wrapped("@hold", self.compiled(element, depth + 1)?));
                }
                wrapped("@share", IdedExpr { id, expr: Expr::List(ListExpr { elements, ..list }) }).expr
            }
            Expr::Map(mut map) => {
                for entry in &mut map.entries {
                    if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                        entry.key = self.compiled(std::mem::take(&mut entry.key), depth + 1)?;
                        entry.value = wrapped("@hold", self.compiled(std::mem::take(&mut entry.value), depth + 1)?);
                    }
                }
                wrapped("@share", IdedExpr { id, expr: Expr::Map(map) }).expr
            }
            Expr::Call(call) => self.call(id, call, depth)?,
            Expr::Comprehension(comprehension) => self.comprehension(id, *comprehension, depth)?,
            Expr::Struct(message) => {
                return Err(
                    self.error(id, format!("`{}{{}}` makes a message, which rules do not know", message.type_name))
                );
            }
            Expr::Unspecified => return Err(self.error(id, "it cannot be read".to_owned())),
        };
        Ok(IdedExpr { id, expr })
    }

    fn constant(&mut self, value: Boxed<'static>) -> Expr {
        self.constants.push(value);
        Expr::Ident(format!("@{}", self.constants.len() - 1))
    }

    fn literal(&mut self, id: u64, literal: LiteralValue) -> Result<Expr, RuleError> {
        match literal {
            LiteralValue::UInt(value) => match i64::try_from(*value.inner()) {
                Ok(value) => Ok(Expr::Literal(LiteralValue::Int(CelInt::from(value)))),
                Err(_) => Ok(self.constant(Box::new(Exact(Decimal::from(*value.inner()))))),
            },
            LiteralValue::Double(value) => match self.as_written(id, *value.inner()) {
                Some(value) => Ok(self.constant(Box::new(Exact(value)))),
                None => Err(self.error(id, "a number that is too long to calculate with".to_owned())),
            },
            LiteralValue::Bytes(_) => Err(self.error(id, "bytes, which rules do not know".to_owned())),
            other => Ok(Expr::Literal(other)),
        }
    }

    /// The number of a literal: by its own text, as the float that the parser made of it may have been rounded.
    fn as_written(&self, id: u64, float: f64) -> Option<Decimal> {
        let (start, stop) = self.places.offset_for(id)?;
        let text: String =
            self.source.get(start as usize..=stop as usize)?.chars().filter(|c| !c.is_whitespace()).collect();
        let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |digits| ("-", digits));
        let zero = if digits.starts_with('.') { "0" } else { "" };
        let same = |number: &str| number.parse::<f64>().is_ok_and(|other| other.to_bits() == float.to_bits());
        let text = format!("{sign}{zero}{digits}");
        let text = if same(&text) { text } else { float.to_string() };
        Decimal::read(&text).ok()
    }

    fn is_bound(&self, name: &str) -> bool {
        name == RESULT || self.scope.iter().any(|bound| bound == name)
    }

    fn check_variable(&self, id: u64, name: &str) -> Result<(), RuleError> {
        let names = self.known.names();
        if names.contains(&name) {
            return Ok(());
        }
        let bound = self.scope.iter().map(String::as_str);
        let names: Vec<&str> = names.into_iter().chain(bound).collect();
        Err(self.error(id, unknown("variable", name, &names)))
    }

    /// Checks a member that is known when the rule is loaded.
    fn check_member(&self, id: u64, holder: &IdedExpr, member: &str) -> Result<(), RuleError> {
        let Expr::Ident(holder) = &holder.expr else { return Ok(()) };
        if self.is_bound(holder) {
            return Ok(());
        }
        let Some(members) = self.known.members(holder) else { return Ok(()) };
        if members.contains(&member) {
            return Ok(());
        }
        Err(self.error(id, unknown(&format!("member of `{holder}`"), member, &members)))
    }

    fn call(&mut self, id: u64, call: CallExpr, depth: usize) -> Result<Expr, RuleError> {
        let CallExpr { func_name, target, args } = call;
        let is_result = |arg: &IdedExpr| matches!(&arg.expr, Expr::Ident(name) if name == RESULT);
        if args.first().is_some_and(is_result) && EXACT.iter().any(|(operator, _)| *operator == func_name) {
            return self.step(func_name, args, depth);
        }
        let operator = EXACT.iter().find(|(operator, _)| *operator == func_name);
        if target.is_none() && (operator.is_some() || PLAIN.contains(&func_name.as_str())) {
            if let (operators::INDEX, [holder, member]) = (func_name.as_str(), args.as_slice())
                && let Expr::Literal(LiteralValue::String(name)) = &member.expr
            {
                self.check_member(member.id, holder, name.inner())?;
            }
            let func_name = operator.map_or(func_name, |(_, exact)| (*exact).to_owned());
            return Ok(Expr::Call(CallExpr { func_name, target: None, args: self.all(args, depth)? }));
        }
        self.check_function(id, &func_name, target.is_some(), args.len())?;
        let target = target.map(|target| self.compiled(*target, depth + 1).map(Box::new)).transpose()?;
        let mut args = self.all(args, depth)?;
        self.fold(&func_name, target.is_some(), &mut args)?;
        Ok(Expr::Call(CallExpr { func_name, target, args }))
    }

    fn all(&mut self, args: Vec<IdedExpr>, depth: usize) -> Result<Vec<IdedExpr>, RuleError> {
        args.into_iter().map(|arg| self.compiled(arg, depth + 1)).collect()
    }

    /// The part of a macro that adds to its result. It keeps CEL's own form, which CEL runs without copying the result.
    fn step(&mut self, func_name: String, args: Vec<IdedExpr>, depth: usize) -> Result<Expr, RuleError> {
        let mut kept = Vec::with_capacity(args.len());
        for arg in args {
            kept.push(match arg.expr {
                Expr::List(list) => {
                    let mut elements = Vec::with_capacity(list.elements.len());
                    for element in list.elements {
                        elements.push(wrapped("@hold", self.compiled(element, depth + 1)?));
                    }
                    IdedExpr { id: arg.id, expr: Expr::List(ListExpr { elements, ..list }) }
                }
                _ => arg, // the result itself, and the one that `exists_one` adds to it
            });
        }
        Ok(Expr::Call(CallExpr { func_name, target: None, args: kept }))
    }

    /// Works out what is known at load: patterns, and decimals that are written as text.
    fn fold(&mut self, name: &str, member: bool, args: &mut [IdedExpr]) -> Result<(), RuleError> {
        let at = match (name, member) {
            ("matches", false) => 1,
            ("matches" | "find" | "replace", true) | ("decimal", false) => 0,
            _ => return Ok(()),
        };
        let Some(arg) = args.get_mut(at) else { return Ok(()) };
        let Expr::Literal(LiteralValue::String(text)) = &arg.expr else { return Ok(()) };
        let (id, text) = (arg.id, text.inner().to_owned());
        arg.expr = if name == "decimal" {
            let value = Decimal::read(&text).map_err(|error| self.error(id, error.to_string()))?;
            self.constant(Box::new(Exact(value)))
        } else {
            let pattern = functions::pattern(&text).map_err(|message| self.error(id, message))?;
            self.constant(Box::new(pattern))
        };
        Ok(())
    }

    fn check_function(&self, id: u64, name: &str, member: bool, args: usize) -> Result<(), RuleError> {
        let shown = |member: bool, name: &str| if member { format!(".{name}()") } else { format!("{name}()") };
        let mut same = ENTRIES.iter().filter(|entry| entry.name == name).peekable();
        if same.peek().is_none() {
            let macros = ["has", "all", "exists", "exists_one", "map", "filter"];
            let names = ENTRIES.iter().map(|entry| entry.name).filter(|name| !name.starts_with('@'));
            let mut names: Vec<&str> = names.chain(macros).collect();
            names.sort_unstable();
            names.dedup();
            return Err(self.error(id, unknown("function", name, &names)));
        }
        let entries: Vec<_> = same.collect();
        if !entries.iter().any(|entry| entry.member == member) {
            let (found, right) = (shown(member, name), shown(!member, name));
            return Err(self.error(id, format!("`{name}` is called as `{right}`, found `{found}`")));
        }
        let takes = |entry: &&&functions::Entry| entry.member == member && entry.arity == args + usize::from(member);
        if entries.iter().any(|entry| takes(&entry)) {
            return Ok(());
        }
        let counts: Vec<String> = entries
            .iter()
            .filter(|entry| entry.member == member)
            .map(|entry| (entry.arity - usize::from(member)).to_string())
            .collect();
        Err(self.error(id, format!("`{name}` takes {} arguments, found {args}", counts.join(" or "))))
    }

    fn comprehension(&mut self, id: u64, loops: ComprehensionExpr, depth: usize) -> Result<Expr, RuleError> {
        let range = self.compiled(loops.iter_range, depth + 1)?;
        let appends = matches!(loops.accu_init.expr, Expr::List(_));
        self.scope.push(loops.iter_var.clone());
        let step = self.compiled(loops.loop_step, depth + 1);
        self.scope.pop();
        let loop_step = step?;
        let turn = nodes(&loop_step).saturating_add(TURN_STEPS);
        let turn = IdedExpr { id: 0, expr: Expr::Literal(LiteralValue::Int(CelInt::from(turn.cast_signed()))) };
        let iter_range = IdedExpr {
            id: range.id,
            expr: Expr::Call(CallExpr { func_name: "@range".to_owned(), target: None, args: vec![range, turn] }),
        };
        let expr = Expr::Comprehension(Box::new(ComprehensionExpr { iter_range, loop_step, ..loops }));
        Ok(if appends { wrapped("@share", IdedExpr { id, expr }).expr } else { expr })
    }
}

fn wrapped(name: &str, expression: IdedExpr) -> IdedExpr {
    let id = expression.id;
    IdedExpr { id, expr: Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args: vec![expression] }) }
}

/// What one run through an expression takes, at most. Loops within it take their own steps for every turn.
fn nodes(expression: &IdedExpr) -> u64 {
    let all = |expressions: &[IdedExpr]| expressions.iter().map(nodes).sum::<u64>();
    1 + match &expression.expr {
        Expr::Call(call) => all(&call.args) + call.target.as_deref().map_or(0, nodes),
        Expr::Select(select) => nodes(&select.operand),
        Expr::List(list) => all(&list.elements),
        Expr::Map(map) => map
            .entries
            .iter()
            .map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => nodes(&entry.key) + nodes(&entry.value),
                EntryExpr::StructField(field) => nodes(&field.value),
            })
            .sum(),
        Expr::Comprehension(loops) => nodes(&loops.iter_range) + 4,
        Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => 0,
    }
}

/// How deep running an expression calls itself.
fn levels(expression: &IdedExpr) -> usize {
    let all = |expressions: &[IdedExpr]| expressions.iter().map(levels).max().unwrap_or(0);
    1 + match &expression.expr {
        Expr::Call(call) => all(&call.args).max(call.target.as_deref().map_or(0, levels)),
        Expr::Select(select) => match &select.operand.expr {
            Expr::Ident(_) => 0,
            Expr::Select(_) => levels(&select.operand) - 1, // a row of members is looked up in one go
            _ => levels(&select.operand),
        },
        Expr::List(list) => all(&list.elements),
        Expr::Map(map) => {
            let entry = |entry: &cel::common::ast::IdedEntryExpr| match &entry.expr {
                EntryExpr::MapEntry(entry) => levels(&entry.key).max(levels(&entry.value)),
                EntryExpr::StructField(field) => levels(&field.value),
            };
            map.entries.iter().map(entry).max().unwrap_or(0)
        }
        Expr::Comprehension(loops) => levels(&loops.iter_range).max(levels(&loops.loop_step)),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => 0,
    }
}

fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let listed: Vec<String> = known.iter().take(40).map(|name| format!("`{name}`")).collect();
    let listed = if listed.is_empty() { "none".to_owned() } else { listed.join(", ") };
    let name = crate::json::fault::shown(name);
    format!("unknown {what} `{name}`{}; known: {listed}", did_you_mean(&name, known.iter().copied()))
}
