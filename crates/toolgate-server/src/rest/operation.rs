//! One thing that can be asked for: what the table in `operations` is made of.
//!
//! Invariant: it says all that a client has to know, and nothing of how it is answered.

/// Who may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Everybody, without a key.
    Nothing,
    /// Every caller; each sees what it may.
    Key,
    /// Callers with this permission.
    Permission(&'static str),
    /// Callers with the permissions of the tool.
    OfTool,
}

/// What an answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// JSON, by the name of its schema.
    Json(&'static str),
    /// A text of another kind.
    Text(&'static str),
    /// Events of a server, as they happen.
    Events,
    Empty,
}

/// A parameter in the query: its name, its type, what it does.
pub(super) type Parameter = (&'static str, &'static str, &'static str);

/// One thing that can be asked for.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// What programs call it.
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) need: Need,
    pub(super) query: &'static [Parameter],
    /// The schema of its body.
    pub(super) body: Option<&'static str>,
    pub(super) status: u16,
    pub(super) content: Content,
    /// What it is answered with when that fails, beside what every request can be answered with.
    pub(super) errors: &'static [u16],
    /// Whether it depends on the revision in `If-Match`.
    pub(super) conditional: bool,
}

impl Operation {
    pub(super) fn new(
        method: &'static str,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Self {
        Self {
            method,
            path,
            id,
            summary,
            need: Need::Key,
            query: &[],
            body: None,
            status: 200,
            content: Content::Empty,
            errors: &[],
            conditional: false,
        }
    }

    pub(super) fn needs(mut self, need: Need) -> Self {
        self.need = need;
        self
    }

    pub(super) fn query(mut self, query: &'static [Parameter]) -> Self {
        self.query = query;
        self
    }

    pub(super) fn takes(mut self, schema: &'static str) -> Self {
        self.body = Some(schema);
        self
    }

    pub(super) fn gives(mut self, status: u16, content: Content) -> Self {
        self.status = status;
        self.content = content;
        self
    }

    pub(super) fn or(mut self, errors: &'static [u16]) -> Self {
        self.errors = errors;
        self
    }

    pub(super) fn conditional(mut self) -> Self {
        self.conditional = true;
        self
    }

    /// The parameters in its path.
    pub(super) fn parameters(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }

    /// Every status of an answer that is an error.
    pub(super) fn refusals(&self) -> Vec<u16> {
        // Another host, or a body that is compressed.
        let mut all = vec![403, 415];
        all.extend(self.errors);
        if self.need != Need::Nothing {
            // A query or a key that is none; too many wrong ones.
            all.extend([400, 401, 429]);
        }
        if self.body.is_some() {
            all.extend([400, 408, 413]);
        }
        if self.parameters().next().is_some() {
            all.extend([400, 404]);
        }
        if self.conditional {
            all.extend([409, 412, 422, 503]);
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}
