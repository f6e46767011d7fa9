//! The answers of REST operations that pages show.
//!
//! Only members that a page uses. A member that is missing or `null` has its default, so a page shows the answer that the caller got.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;

/// Reads `null` as the default.
fn lenient<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// Declares the answer of an operation: all members have a default.
macro_rules! answers {
    ($($(#[$about:meta])* $name:ident { $($(#[$meta:meta])* $member:ident: $kind:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        pub struct $name { $($(#[$meta])* #[serde(deserialize_with = "lenient")] pub $member: $kind,)* }
    )*};
}

answers! {
    Servers { servers: Vec<Server>, }
    Server {
        name: String,
        transport: String,
        state: String,
        reason: Option<String>,
        retry_in_ms: Option<u64>,
        protocol_version: Option<String>,
        connections: u64,
        tools: u64,
        held_back: u64,
        implementation: Option<String>,
        since: Option<String>,
        restarts: Option<u64>,
        last_errors: Vec<PastError>,
        prompts: Option<u64>,
        resources: Option<u64>,
        templates: Option<u64>,
        approved: Option<bool>,
        login: Option<Login>,
        trusted: Option<bool>,
        source: Option<Source>,
        entry: Option<Json>,
    }
    PastError { at: String, reason: String, }
    Login { kind: String, of: String, state: String, }
    Source { kind: String, file: Option<String>, line: Option<u64>, editable: bool, }
    Stderr { lines: Vec<String>, running: bool, }
    Waiting { approved: Option<bool>, waiting: Vec<HeldBack>, rejected: Vec<HeldBack>, }
    /// A definition that waits for an approval.
    HeldBack {
        name: String,
        tool: String,
        hash: String,
        cause: String,
        class: Option<String>,
        reasons: Vec<String>,
        was: Option<Json>,
        is: Option<Json>,
        rejected: Option<Rejected>,
        misfits: Option<Misfits>,
    }
    Rejected { at: String, by: String, }
    /// Recorded calls that would not fit the new schema.
    Misfits {
        checked: u64,
        count: u64,
        uncertain: u64,
        callers: Vec<CallerCount>,
        calls: Vec<String>,
        complete: bool,
    }
    CallerCount { caller: String, count: u64, }
    TestedServer {
        name: String,
        connected: bool,
        reason: Option<String>,
        hint: Option<String>,
        took_ms: u64,
        protocol_version: Option<String>,
        implementation: Option<String>,
        tools: Vec<Tool>,
        prompts: Vec<Item>,
        resources: Vec<Item>,
        stderr: Vec<String>,
        notes: Vec<Problem>,
    }
    Imported { servers: Vec<ImportedServer>, notes: Vec<Problem>, }
    ImportedServer {
        name: String,
        entry: Json,
        exists: bool,
        needs: Vec<String>,
        outcome: String,
        error: Option<Problem>,
    }
    Problem {
        severity: Option<String>,
        message: String,
        hint: Option<String>,
        place: Option<String>,
        line: Option<u64>,
        column: Option<u64>,
    }
    Items { resources: Vec<Item>, templates: Vec<Item>, prompts: Vec<Item>, }
    /// A resource, a template or a prompt.
    Item { server: String, uri: String, name: String, title: String, description: String, definition: Json, }
    Tools { tools: Vec<Tool>, next: Option<String>, }
    Tool {
        name: String,
        server: Option<String>,
        title: Option<String>,
        description: String,
        input_schema: Json,
        output_schema: Json,
        version: Option<String>,
        risk: String,
        idempotent: bool,
        cacheable: bool,
        category: Option<String>,
        tags: Vec<String>,
        state: String,
        reason: Option<String>,
        deprecated: Option<Json>,
        names: Vec<String>,
        permissions: Vec<String>,
        limits: Json,
        examples: Vec<Json>,
        response_time: Option<String>,
        source: Option<Source>,
        entry: Option<Json>,
        trusted: Option<bool>,
        hash: Option<String>,
    }
    Found { decision: String, confidence: f64, tool: Option<String>, missing: Vec<String>, tools: Vec<Hit>, }
    Hit { name: String, score: f64, }
    ToolCallers { callers: Vec<CallerDecision>, next: Option<String>, }
    CallerDecision {
        caller: String,
        decision: String,
        visible: bool,
        rules: Vec<String>,
        permissions: Vec<PermissionCheck>,
        question: Option<String>,
    }
    /// The decision about one caller and one tool.
    Why {
        decision: String,
        visible: bool,
        permissions: Vec<PermissionCheck>,
        rules: Vec<String>,
        through: Vec<String>,
        question: Option<String>,
        failed: Option<String>,
        policy: String,
        held_back: Option<String>,
        caller: String,
        tool: String,
    }
    PermissionCheck { permission: String, given: bool, through: Option<String>, }
    /// Result of a call.
    Outcome {
        status: String,
        data: Json,
        error: Option<CallFailure>,
        agent_hints: Option<Json>,
        metadata: Json,
        steps: Vec<Step>,
    }
    /// A stage of a call, in microseconds from the request.
    Step { stage: String, start: u64, micros: u64, note: Option<String>, failed: bool, }
    CallFailure {
        code: String,
        class: String,
        message: String,
        hint: Option<String>,
        retryable: bool,
        correlation_id: Option<String>,
    }
    Executions { executions: Vec<Execution>, next: Option<String>, }
    /// One call, with its records.
    Execution {
        id: String,
        time: String,
        kind: String,
        tool: String,
        server: Option<String>,
        caller: String,
        session: Option<String>,
        status: String,
        state: String,
        stage: Option<String>,
        code: Option<String>,
        micros: Option<u64>,
        steps: Vec<Step>,
        begin: Option<Begin>,
        end: Option<End>,
    }
    /// Figures of a period.
    Figures {
        since: String,
        until: String,
        step: u64,
        total: Totals,
        steps: Vec<FigureStep>,
        running: u64,
    }
    Totals {
        calls: u64,
        success: u64,
        failed: u64,
        abandoned: u64,
        cached: u64,
        refused: u64,
        errors: BTreeMap<String, u64>,
        p50: Option<u64>,
        p95: Option<u64>,
        p99: Option<u64>,
    }
    LogState { writable: bool, records: u64, bytes: u64, last: Option<LastRecord>, verified: Verified, }
    LastRecord { seq: u64, hash: String, time: String, }
    Verified { state: String, records: u64, at: Option<String>, faults: Vec<String>, }
    Questions { questions: Vec<Question>, approvals: Vec<Question>, next: Option<String>, }
    /// A question to a person, or a call that waits for an approval.
    Question {
        id: String,
        kind: String,
        text: String,
        choices: Vec<String>,
        schema: Option<Json>,
        arguments: Option<String>,
        full_arguments: Option<String>,
        arguments_bytes: Option<u64>,
        arguments_sha256: Option<String>,
        masked: Vec<Json>,
        shortened: bool,
        caller: String,
        tool: String,
        server: Option<String>,
        session: Option<String>,
        asked_at: String,
        expires_at: String,
        state: Option<String>,
        tainted: Option<bool>,
        by: Option<String>,
        answered_at: Option<String>,
        rules: Vec<String>,
        policy: Option<String>,
        definition: Option<String>,
        approved: Option<bool>,
        declined: Option<bool>,
        call: Option<QuestionedCall>,
    }
    QuestionedCall {
        id: Option<String>,
        tool: String,
        server: Option<String>,
        original: Option<String>,
        arguments: Json,
        extra: Option<Json>,
        bytes: u64,
        sha256: Option<String>,
    }
    Runs { runs: Vec<Run>, next: Option<String>, }
    Run {
        run: String,
        began: String,
        caller: String,
        model: String,
        task: String,
        state: String,
        turns: u64,
        calls: u64,
        writes: u64,
        usage: Json,
        cost: Option<f64>,
        budgets: Json,
        entries: Vec<Json>,
    }
    Policy {
        file: Option<String>,
        text: String,
        hash: String,
        exists: bool,
        in_use: bool,
    }
    PolicyCheck { ok: bool, version: Option<String>, problems: Vec<Problem>, }
    PolicyReplay {
        ok: bool,
        problems: Vec<Problem>,
        version: Option<String>,
        access: Vec<AccessChange>,
        calls: ReplayedCalls,
        complete: bool,
    }
    AccessChange { caller: Option<String>, group: Option<String>, tool: String, from: String, to: String, }
    ReplayedCalls { replayed: u64, uncertain: u64, gone: u64, flips: Vec<Flip>, }
    Flip {
        caller: String,
        tool: String,
        from: String,
        to: String,
        certain: bool,
        count: u64,
        rules: Vec<String>,
        call: Option<String>,
    }
    Matrix { policy: String, tools: Vec<String>, rows: Vec<MatrixRow>, next: Option<String>, tools_next: Option<String>, }
    MatrixRow { caller: String, kind: String, decisions: Vec<String>, }
    PolicyVersions { versions: Vec<PolicyVersion>, }
    PolicyVersion { hash: String, at: String, by: String, text: Option<String>, }
    Callers { callers: Vec<Caller>, next: Option<String>, }
    Caller {
        id: String,
        description: Option<String>,
        permissions: Vec<String>,
        groups: Vec<Json>,
        last_used: Option<String>,
        expires: Option<String>,
        keys: Option<u64>,
        editable: Option<bool>,
        source: Option<String>,
        by: Option<String>,
        created: Option<String>,
    }
    Keys { keys: Vec<Key>, }
    Key { name: String, created: Option<String>, by: Option<String>, expires: Option<String>, last_used: Option<String>, }
    Me {
        id: String,
        credential: Option<String>,
        expires: Option<String>,
        person: Option<String>,
        permissions: Vec<String>,
        groups: Vec<Json>,
        management: Vec<String>,
        profiles: Option<Vec<String>>,
    }
    Profiles { profiles: Vec<Profile>, none: Option<bool>, }
    Profile { name: String, description: Option<String>, path: String, tools: Option<u64>, format: Option<String>, }
    Ready { ready: bool, servers: u64, down: u64, reason: Option<String>, }
    Configuration { revision: Option<String>, policy: String, rejected: Vec<Json>, needs_restart: Vec<String>, }
}

/// Figures of one step of a period.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct FigureStep {
    pub time: String,
    #[serde(flatten)]
    pub figures: Totals,
}

/// First record of a call. The execution log has its own names.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Begin {
    pub seq: u64,
    pub time: String,
    pub call: String,
    pub caller: String,
    pub tool: String,
    pub operation: Option<String>,
    pub session: Option<String>,
    pub correlation: String,
    pub trace: String,
    pub user: Option<String>,
    pub agent_version: Option<String>,
    pub server: Option<String>,
    pub definition: Option<String>,
    pub decision: String,
    pub rules: Vec<String>,
    pub asked: Option<String>,
    pub refused_by: Option<String>,
    pub tainted: bool,
    pub not_approved: bool,
    pub deprecated: bool,
    pub person: Option<String>,
    pub groups: Vec<String>,
    pub credential: Option<String>,
    pub arguments: Option<Json>,
    pub arguments_cut: Option<Cut>,
}

/// Last record of a call.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct End {
    pub seq: u64,
    pub time: String,
    pub status: String,
    pub error: Option<RecordedError>,
    pub attempts: u64,
    pub cached: bool,
    pub micros: u64,
    pub output: Option<Json>,
    pub output_cut: Option<Cut>,
    pub upstream_credential: Option<String>,
    pub upstream_account: Option<String>,
}

/// Error of a call in the log.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RecordedError {
    pub code: String,
    pub stage: String,
    pub outcome: String,
    pub message: String,
    pub cause: Option<String>,
}

/// The recorded part of a long body.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Cut {
    pub head: String,
    pub length: u64,
    pub sha256: Option<String>,
    pub blake3: Option<String>,
}
