// SPDX-License-Identifier: BSD-3-Clause
//! Writes the manual pages of MPI's functions (section 3) from the tables: `xtask man --to share/man`. A page
//! describes a function together with its form with large counts. The page of the form with large counts is a
//! link to it.

use crate::fortran::{Bindings, Dummy, Form, Procedure, modules};
use crate::gen_shim::{is_bare, object};
use crate::table::{self, ApiFunction, ApiTable, HANDLES, Param};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The contents of `tables/man.toml`: meanings of parameters, and lines about functions.
#[derive(Deserialize)]
struct ManTable {
    parameters: BTreeMap<String, Meaning>,
    chapters: Vec<Chapter>,
}

#[derive(Deserialize)]
struct Meaning {
    /// A phrase that says what a parameter of this name means.
    is: String,
    /// The error class of a call in which the parameter has a wrong value. None if there is none.
    wrong: Option<String>,
}

/// A chapter of the MPI standard, with the functions that the chapter describes.
#[derive(Deserialize)]
struct Chapter {
    number: u32,
    title: String,
    /// A line about each function of the chapter, by its name without `MPI_`.
    functions: BTreeMap<String, String>,
}

/// The contents of `tables/man_text.toml`: texts about functions that no other table has.
#[derive(Deserialize)]
struct Texts {
    /// The names of the collective functions that are not described in chapter 6 of the standard.
    collective: BTreeSet<String>,
    /// For each function, by parameter: a meaning that replaces the general one in `ManTable::parameters`.
    parameters: BTreeMap<String, BTreeMap<String, String>>,
    /// The description of each function for which the line in `Chapter::functions` is not enough.
    descriptions: BTreeMap<String, String>,
    /// For some functions, a paragraph on what Outboard does beyond the standard.
    notes: BTreeMap<String, String>,
    examples: Vec<Example>,
}

/// A whole program that is an example for one or more functions.
#[derive(Deserialize)]
struct Example {
    functions: Vec<String>,
    text: String,
}

impl Texts {
    /// Returns the names of all functions for which `tables/man_text.toml` has a text.
    fn names(&self) -> impl Iterator<Item = &String> {
        let tables = self.descriptions.keys().chain(self.notes.keys()).chain(self.parameters.keys());
        tables.chain(&self.collective).chain(self.examples.iter().flat_map(|example| &example.functions))
    }
}

/// Makes the manual pages of all MPI functions. Returns the name and the text of each file.
pub fn pages(root: &Path) -> Result<Vec<(String, String)>, String> {
    let table = ApiTable::read(root)?;
    let bindings = Bindings::read(root)?;
    let words: ManTable = table::toml(root, "man.toml")?;
    let known = |name: &str| table.function(name).is_some();
    for name in words.chapters.iter().flat_map(|chapter| chapter.functions.keys()) {
        if !known(&format!("MPI_{name}")) {
            return Err(format!("tables/man.toml: there is no MPI_{name}"));
        }
    }
    let texts: Texts = table::toml(root, "man_text.toml")?;
    if let Some(name) = texts.names().find(|name| !known(&format!("MPI_{name}"))) {
        return Err(format!("tables/man_text.toml: there is no MPI_{name}"));
    }
    let mut pages = Vec::new();
    for function in &table.functions {
        let file = format!("{}.3", function.name);
        let plain = function.name.strip_suffix("_c").filter(|plain| known(plain));
        pages.push((
            file,
            match plain {
                Some(plain) => format!(".so man3/{plain}.3\n"),
                None => {
                    ManPage { function, table: &table, bindings: &bindings, words: &words, texts: &texts }
                        .text()?
                }
            },
        ));
    }
    Ok(pages)
}

struct ManPage<'a> {
    function: &'a ApiFunction,
    table: &'a ApiTable,
    bindings: &'a Bindings,
    words: &'a ManTable,
    texts: &'a Texts,
}

impl ManPage<'_> {
    fn text(&self) -> Result<String, String> {
        let name = &self.function.name;
        let large = self.table.function(&format!("{name}_c"));
        let (chapter, summary) = self.summary()?;
        let both = large.map_or(name.clone(), |large| format!("{name}, {}", large.name));
        // The date is that of the standard, whose contents the page repeats.
        let mut text = format!(".TH {name} 3 2025-06-05 Outboard MPI-5.0\n.SH NAME\n{both} \\- {summary}\n");
        text.push_str(".SH SYNOPSIS\n.nf\n.B #include <mpi.h>\n\n");
        for function in std::iter::once(self.function).chain(large) {
            text.push_str(&escaped(&prototype(function)));
        }
        text.push_str(&escaped(&self.fortran()));
        push!(text, ".fi\n{}{}", self.parameters(), self.description(chapter, &summary, large.is_some()));
        text.push_str(&self.errors());
        if let Some(notes) = self.texts.notes.get(self.name()) {
            push!(text, ".SH NOTES\n{}", paragraphs(notes));
        }
        let is_here = |example: &&Example| example.functions.iter().any(|name| name == self.name());
        if let Some(example) = self.texts.examples.iter().find(is_here) {
            push!(text, ".SH EXAMPLE\n.nf\n{}.fi\n", escaped(&example.text));
        }
        push!(text, ".SH SEE ALSO\n{}.BR mpirun (1)\n.PP\n", self.related());
        push!(
            text,
            "MPI: A Message-Passing Interface Standard, version 5.0, chapter {}, {}\n",
            chapter.number,
            chapter.title
        );
        Ok(text)
    }

    /// Returns the function's name without `MPI_`.
    fn name(&self) -> &str {
        self.function.name.trim_start_matches("MPI_")
    }

    /// Makes the section DESCRIPTION of a manual page: what the function does, and what holds for all
    /// functions of its kind.
    fn description(&self, chapter: &Chapter, summary: &str, has_large: bool) -> String {
        let name = &self.function.name;
        let has = |param: &str| self.function.params.iter().any(|known| known.name == param);
        let mut text = match self.texts.descriptions.get(self.name()) {
            Some(description) => paragraphs(description),
            None => escaped(&format!("{name} {summary}.\n")),
        };
        let is_persistent = self.name().ends_with("_init") && has("request");
        let is_nonblocking = !is_persistent && has("request") && self.starts_operation();
        if is_nonblocking {
            text.push_str(
                "It returns at once. MPI_Wait, MPI_Test or one of their like completes the request; until then \
                 the buffers belong to MPI.\n",
            );
        }
        if is_persistent {
            text.push_str(
                "The request moves nothing until MPI_Start or MPI_Startall starts it. MPI_Wait, MPI_Test or one \
                 of their like completes each start, and MPI_Request_free frees the request.\n",
            );
        }
        if (chapter.number == 6 || self.name().contains("eighbor_")) && has("comm")
            || self.texts.collective.contains(self.name())
        {
            text.push_str(
                "The call is collective: all processes make it, in the same order as their other collective \
                 calls on that object.\n",
            );
        }
        if has_large {
            push!(text, "{name}_c is the same with counts of type MPI_Count.\n");
        }
        format!(".SH DESCRIPTION\n{text}")
    }

    /// Whether the function starts an operation and returns a request for it, as MPI_Isend and MPI_Rput do.
    fn starts_operation(&self) -> bool {
        let name = self.name();
        let rest =
            name.strip_prefix(['I', 'R']).or_else(|| Some(name.rsplit_once("_i")?.1)).unwrap_or_default();
        let base = rest.trim_end_matches("_with_info");
        ["mprobe", "mrecv", "send", "recv", "bsend", "ssend", "rsend"].contains(&base)
            || self.table.function(&format!("MPI_{}", capitalised(base))).is_some()
            || ["dup", "flush", "read", "write"].iter().any(|word| base.starts_with(word))
    }

    /// Finds the chapter that describes the function, and a line that says what the function does.
    fn summary(&self) -> Result<(&Chapter, String), String> {
        let name = self.function.name.trim_start_matches("MPI_");
        let find = |name: &str| {
            self.words.chapters.iter().find_map(|chapter| Some((chapter, chapter.functions.get(name)?)))
        };
        if let Some((chapter, summary)) = find(name) {
            return Ok((chapter, summary.clone()));
        }
        if let Some((of, way)) = name.rsplit_once('_').filter(|(_, way)| ["toint", "fromint"].contains(way)) {
            let (chapter, _) = find("Abi_get_version").ok_or("tables/man.toml lacks Abi_get_version")?;
            let summary = if way == "toint" {
                "tells the integer of a handle"
            } else {
                "tells the handle of an integer"
            };
            return Ok((chapter, format!("{summary} (MPI_{of})")));
        }
        let (blocking, how) = match name.strip_suffix("_init") {
            Some(blocking) => (blocking.to_owned(), "makes a persistent request of"),
            None => (capitalised(&name[1..]), "starts"),
        };
        let (chapter, _) = find(&blocking).ok_or_else(|| format!("tables/man.toml lacks {name}"))?;
        Ok((chapter, format!("{how} MPI_{blocking}")))
    }

    fn procedure(&self) -> Option<&Procedure> {
        // The index has the names of deprecated functions in capitals.
        let name = &self.function.name;
        self.bindings.procedures.get(name).or_else(|| self.bindings.procedures.get(&name.to_uppercase()))
    }

    fn fortran(&self) -> String {
        let Some(procedure) = self.procedure() else { return String::new() };
        let mut text = String::new();
        if let Some(form) = &procedure.f08 {
            push!(text, "\nUSE mpi_f08\n\n{}{}", call(form), declared(form.params.iter().map(newer)));
            match &procedure.f08_large {
                Some(large) if large.name != form.name => {
                    push!(text, "{}{}", call(large), declared(large.params.iter().map(newer)));
                }
                Some(large) => {
                    let same = |dummy: &&Dummy| {
                        form.params
                            .iter()
                            .any(|other| other.r#type == dummy.r#type && other.name == dummy.name)
                    };
                    let wide = large.params.iter().filter(|dummy| !same(dummy)).map(newer);
                    push!(text, "    ! or, for large counts:\n{}", declared(wide));
                }
                None => {}
            }
        }
        push!(text, "\nUSE mpi\n! or INCLUDE 'mpif.h'\n\n{}", call(&procedure.f90));
        let newer = procedure.f08.as_ref().map_or(&[][..], |form| &form.params);
        let older = procedure.f90.params.iter().enumerate().map(|(at, dummy)| older(dummy, newer.get(at)));
        text + &declared(older)
    }

    /// Makes the section PARAMETERS of a manual page: the name, direction and meaning of each parameter.
    fn parameters(&self) -> String {
        let mut text = String::new();
        for param in self.function.params.iter().filter(|param| param.r#type != "...") {
            push!(text, ".TP\n.IR {} \" ({})\"\n", param.name, self.way(param));
            push!(text, "{}\n", escaped(&self.meaning(param)));
        }
        if text.is_empty() { text } else { format!(".SH PARAMETERS\n{text}") }
    }

    /// Returns the meaning of a parameter as text. It is empty if no table has the meaning.
    fn meaning(&self, param: &Param) -> String {
        let own = self.texts.parameters.get(self.name()).and_then(|own| own.get(&param.name));
        let known = self.words.parameters.get(&param.name).map(|meaning| &meaning.is);
        match (own.or(known), handle(param)) {
            (Some(meaning), _) => meaning.clone(),
            (None, Some(kind)) => kind.described(self.way(param), !param.array.is_empty()),
            (None, None) if self.name().ends_with("_fromint") => "integer of the handle".into(),
            (None, None) => String::new(),
        }
    }

    /// Returns the direction of a parameter: `in`, `out` or `inout`.
    fn way(&self, param: &Param) -> &'static str {
        let name = self.function.name.as_str();
        let forms = self.procedure().and_then(|procedure| procedure.f08.as_ref());
        let dummy = forms.and_then(|form| form.params.iter().find(|dummy| dummy.name == param.name));
        match dummy.map(|dummy| dummy.intent.as_str()) {
            Some("in") => return "in",
            Some("out") => return "out",
            Some("inout") => return "inout",
            _ => {}
        }
        let pointer = param.r#type.ends_with('*') || !param.array.is_empty();
        if !pointer || param.r#type.starts_with("const ") || param.r#type.contains("_function") {
            return "in";
        }
        let is_given =
            ["base", "buffer", "location"].contains(&param.name.as_str()) && !name.contains("cast");
        let is_changed =
            ["cast", "_replace", "_free", "Reduce_local", "Init"].iter().any(|part| name.contains(part));
        match () {
            () if is_given => "in",
            () if is_changed || (name.starts_with("MPI_T_") && param.name.ends_with("_len")) => "inout",
            () => "out",
        }
    }

    fn errors(&self) -> String {
        if is_bare(self.function) {
            return ".SH ERRORS\nIt cannot fail.\n".into();
        }
        if self.function.name.starts_with("MPI_T_") {
            return ".SH ERRORS\nIt returns MPI_SUCCESS or an error code, such as MPI_T_ERR_NOT_INITIALIZED, and calls no error handler.\n".into();
        }
        let handler = match object(self.function).split('(').next() {
            Some("On::Comm") => "of the communicator",
            Some("On::Win") => "of the window",
            Some("On::File") => "of the file, which returns unless another is set,",
            Some("On::AnyFile") => "of MPI_FILE_NULL, which returns unless another is set,",
            Some("On::Session") => "of the session",
            _ => "of the object, or else of MPI_COMM_SELF,",
        };
        let mut text = format!(
            ".SH ERRORS\nIt returns MPI_SUCCESS or an error code (in Fortran as ierror).\nThe error handler {handler} is called before; \
             MPI_ERRORS_ARE_FATAL ends the job.\n"
        );
        let mut classes = Vec::new();
        for param in &self.function.params {
            let class = match (handle(param), self.words.parameters.get(&param.name)) {
                (Some(handle), _) => handle.wrong(),
                (None, Some(meaning)) => meaning.wrong.as_deref(),
                _ => None,
            };
            if let Some(class) = class.filter(|_| self.way(param) != "out") {
                classes.push(format!("\\fB{class}\\fR (\\fI{}\\fR)", param.name));
            }
        }
        if !classes.is_empty() {
            push!(text, "Invalid arguments are reported as\n{}.\n", classes.join(",\n"));
        }
        text
    }

    /// Returns references to the pages of the function's other forms: blocking, nonblocking and persistent.
    fn related(&self) -> String {
        let name = self.function.name.trim_start_matches("MPI_");
        let bare = name.trim_end_matches("_init");
        let capital = bare.strip_prefix('I').map(capitalised);
        let base = capital
            .filter(|base| self.table.function(&format!("MPI_{base}")).is_some())
            .unwrap_or(bare.to_owned());
        let others = [base.clone(), format!("I{}", base.to_lowercase()), format!("{base}_init")];
        let known = others
            .iter()
            .filter(|other| *other != name && self.table.function(&format!("MPI_{other}")).is_some());
        known.map(|other| format!(".BR MPI_{other} (3),\n")).collect()
    }
}

/// The type of a parameter that is a handle, such as `MPI_Comm`.
struct HandleType<'a>(&'a str);

fn handle(param: &Param) -> Option<HandleType<'_>> {
    let plain = param.r#type.trim_start_matches("const ").trim_end_matches(" *");
    HANDLES.contains(&plain).then_some(HandleType(plain))
}

impl HandleType<'_> {
    fn described(&self, way: &str, many: bool) -> String {
        let one = match (self.0, way) {
            ("MPI_Comm", "out") => "the new communicator",
            ("MPI_Comm", _) => "communicator",
            ("MPI_Datatype", _) => "datatype of each element",
            ("MPI_Win", "out") => "the new window, to be freed by MPI_Win_free",
            ("MPI_Win", _) => "window that the call is about",
            ("MPI_File", _) => "file, as MPI_File_open gave it",
            ("MPI_Op", _) => {
                "operator that combines two elements: MPI_SUM and others, or one of MPI_Op_create"
            }
            ("MPI_Request", "out") => "handle of the operation, for MPI_Wait, MPI_Test and their like",
            ("MPI_Request", _) => {
                "operation to complete; MPI_REQUEST_NULL afterwards, unless it is persistent"
            }
            ("MPI_Message", "out") => "the message that was taken, for MPI_Mrecv or MPI_Imrecv",
            ("MPI_Message", _) => "message that a matched probe took; set to MPI_MESSAGE_NULL",
            ("MPI_Info", _) => "hints, or MPI_INFO_NULL",
            ("MPI_Errhandler", _) => "error handler",
            (other, _) => &other.trim_start_matches("MPI_").to_lowercase(),
        };
        if many { format!("an array: {one}, for each entry") } else { one.into() }
    }
    /// Returns the error class of a call that gets a wrong handle of this type. None if there is no such
    /// class.
    fn wrong(&self) -> Option<&'static str> {
        Some(match self.0 {
            "MPI_Comm" => "MPI_ERR_COMM",
            "MPI_Datatype" => "MPI_ERR_TYPE",
            "MPI_Group" => "MPI_ERR_GROUP",
            "MPI_Op" => "MPI_ERR_OP",
            "MPI_Info" => "MPI_ERR_INFO",
            "MPI_Request" => "MPI_ERR_REQUEST",
            "MPI_Win" => "MPI_ERR_WIN",
            "MPI_File" => "MPI_ERR_FILE",
            "MPI_Session" => "MPI_ERR_SESSION",
            _ => return None,
        })
    }
}

fn prototype(function: &ApiFunction) -> String {
    let params = function.params.iter().map(|param| match param.r#type.as_str() {
        "..." => "...".to_owned(),
        kind if kind.ends_with('*') => format!("{kind}{}{}", param.name, param.array),
        kind => format!("{kind} {}{}", param.name, param.array),
    });
    let params: Vec<String> = params.collect();
    let params = if params.is_empty() { vec!["void".into()] } else { params };
    wrapped(&format!("{} {}(", function.returns, function.name), &params, ");")
}

/// Makes the line of a synopsis that shows a call of a Fortran procedure with its arguments.
fn call(form: &Form) -> String {
    let names: Vec<String> = form.params.iter().map(|dummy| dummy.name.clone()).collect();
    let returns = form.returns.as_ref().map_or(String::new(), |returns| format!("{returns} "));
    wrapped(&format!("{returns}{}(", form.name), &names, ")")
}

/// Makes the lines of a synopsis that declare arguments. Arguments of the same type share a line.
fn declared(arguments: impl Iterator<Item = (String, String)>) -> String {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for (kind, name) in arguments {
        match lines.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, names)) => names.push(name),
            None => lines.push((kind, vec![name])),
        }
    }
    lines.iter().map(|(kind, names)| wrapped(&format!("    {kind}"), names, "")).collect()
}

/// Returns the type and the name of an argument of `mpi_f08`, as a declaration has them.
fn newer(dummy: &Dummy) -> (String, String) {
    let declaration = modules::plain(dummy);
    let (kind, name) = declaration.split_once(":: ").expect("a declaration");
    (format!("{kind}:: "), name.to_owned())
}

/// Returns the type and the name, with its shape, of an argument in `mpi` and `mpif.h`. `newer` is the same
/// argument in `mpi_f08`, from which the shape comes; None if `mpi_f08` lacks the argument.
fn older(dummy: &Dummy, newer: Option<&Dummy>) -> (String, String) {
    let shape = newer.map_or("", |dummy| dummy.shape.as_str());
    let is_status =
        newer.is_some_and(|newer| newer.r#type == "TYPE(MPI_Status)" && dummy.r#type == "INTEGER");
    let shape = match (is_status, dummy.r#type.as_str()) {
        (true, _) if shape.is_empty() => "(MPI_STATUS_SIZE)".to_owned(),
        (true, _) => "(MPI_STATUS_SIZE,*)".to_owned(),
        (_, "<type>") => "(*)".to_owned(),
        _ => shape.to_uppercase(),
    };
    (format!("{} ", dummy.r#type), format!("{}{shape}", dummy.name))
}

/// Makes a line of `head`, the words with commas, and `tail`. If the line is too long, it is continued on
/// indented lines.
fn wrapped(head: &str, words: &[String], tail: &str) -> String {
    let mut text = head.to_owned();
    let mut column = head.len();
    for (at, word) in words.iter().enumerate() {
        if at > 0 {
            text.push(',');
            if column + word.len() > 76 {
                push!(text, "\n{}", " ".repeat(8));
                column = 8;
            } else {
                text.push(' ');
                column += 2;
            }
        }
        text.push_str(word);
        column += word.len();
    }
    text + tail + "\n"
}

fn capitalised(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Returns a text as roff. Empty lines in the text separate its paragraphs.
fn paragraphs(text: &str) -> String {
    let all: Vec<_> = text.trim().split("\n\n").map(escaped).collect();
    all.join("\n.PP\n") + "\n"
}

/// Returns a text with escapes, so that roff prints it unchanged. No line of `text` may begin with a full
/// stop.
pub fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_has_a_page() {
        let pages = pages(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
        let page = |name: &str| pages.iter().find(|page| page.0 == format!("{name}.3")).unwrap().1.as_str();
        assert_eq!(page("MPI_Send_c"), ".so man3/MPI_Send.3\n");
        let wait = page("MPI_Waitall");
        for line in [
            "MPI_Waitall \\- waits for all of several requests",
            "    TYPE(MPI_Request), INTENT(INOUT) :: array_of_requests(count)",
            "    INTEGER COUNT, ARRAY_OF_REQUESTS(COUNT),",
            "        ARRAY_OF_STATUSES(MPI_STATUS_SIZE,*), IERROR",
            ".IR array_of_requests \" (inout)\"",
            "\\fBMPI_ERR_REQUEST\\fR (\\fIarray_of_requests\\fR).",
        ] {
            assert!(wait.lines().any(|known| known == line), "{line}\n{wait}");
        }
        let large = "    INTEGER(KIND=MPI_COUNT_KIND), INTENT(IN) :: count";
        assert!(page("MPI_Send").contains(&format!("! or, for large counts:\n{large}\n")));
        assert!(page("MPI_Iallreduce").contains("starts MPI_Allreduce"));
        assert!(page("MPI_Comm_toint").contains("It cannot fail."));
        for (name, text) in [
            ("MPI_Iallreduce", "until then the buffers belong to MPI"),
            ("MPI_Bcast_init", "MPI_Start or MPI_Startall starts it"),
            ("MPI_Bcast", "The call is collective"),
            ("MPI_Init", "address of main\\(aqs argv"),
        ] {
            assert!(page(name).contains(text), "{name}: {text}");
        }
        assert!(!page("MPI_Send").contains("It returns at once"));
        for (name, text) in &pages {
            let bare = text
                .lines()
                .zip(text.lines().skip(1))
                .find(|(head, rest)| head.starts_with(".IR ") && (rest.is_empty() || rest.starts_with('.')));
            assert_eq!(bare, None, "{name}: a parameter without text");
            // The text does not repeat the name, or the name of its type.
            let letters = |text: &str| {
                text.to_lowercase().replace("mpi_", "").replace(|c: char| !c.is_ascii_alphabetic(), "")
            };
            for (head, rest) in text.lines().zip(text.lines().skip(1)) {
                if let Some(param) = head.strip_prefix(".IR ").and_then(|head| head.split(' ').next()) {
                    let said = letters(rest.trim_start_matches("the "));
                    let kinds = ["datatype", "request", "file", "window", "group", "operator", "message"];
                    assert!(
                        said != letters(param) && !kinds.contains(&said.as_str()),
                        "{name}: {head}: {rest}"
                    );
                }
            }
        }
        // A line that begins with a full stop is a request of roff; only these are in use.
        for (name, text) in &pages {
            let requests = text.lines().filter_map(|line| line.strip_prefix('.')?.split(' ').next());
            let known = ["TH", "SH", "nf", "fi", "B", "TP", "IR", "BR", "PP", "so"];
            requests.for_each(|request| assert!(known.contains(&request), "{name}: .{request}"));
        }
    }
}
