//! One operation of the REST API, as listed in the table of [`super::operations`].
//!
//! Invariant: it describes all a client needs to know, and nothing of the implementation.

/// Requirement of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Requirement {
    /// No credential needed.
    Public,
    /// Any authenticated caller; each sees what it may see.
    AnyCaller,
    /// Callers with this permission.
    Permission(&'static str),
    /// Callers with the permissions of the tool.
    ToolPermissions,
}

/// Content of a successful response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseContent {
    /// JSON, by the name of its schema.
    Json(&'static str),
    /// Another content type.
    Text(&'static str),
    /// Server-sent events.
    Events,
    Empty,
}

/// A query parameter: name, type, description.
pub(super) type Parameter = (&'static str, &'static str, &'static str);

/// An operation of the REST API.
#[derive(Debug, Clone)]
pub(super) struct ApiOperation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// The `operationId` of OpenAPI.
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) need: Requirement,
    pub(super) query: &'static [Parameter],
    /// Schema of the request body.
    pub(super) body: Option<&'static str>,
    pub(super) status: u16,
    pub(super) content: ResponseContent,
    /// Error statuses, besides those that apply to every operation.
    pub(super) errors: &'static [u16],
    /// True if it supports `If-Match`.
    pub(super) conditional: bool,
}

impl ApiOperation {
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
            need: Requirement::AnyCaller,
            query: &[],
            body: None,
            status: 200,
            content: ResponseContent::Empty,
            errors: &[],
            conditional: false,
        }
    }

    pub(super) fn needs(mut self, need: Requirement) -> Self {
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

    pub(super) fn gives(mut self, status: u16, content: ResponseContent) -> Self {
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

    /// Names of the path parameters.
    pub(super) fn parameters(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }

    /// All statuses of error responses.
    pub(super) fn error_statuses(&self) -> Vec<u16> {
        // Wrong host; compressed body.
        let mut all = vec![403, 415];
        all.extend(self.errors);
        if self.need != Requirement::Public {
            // Invalid query; missing or wrong credential; too many requests.
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
