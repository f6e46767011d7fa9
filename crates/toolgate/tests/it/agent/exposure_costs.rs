//! Tokens, calls and rounds of 30 tasks with several steps, for the ways to offer tools to the model of the agent.
//!
//! The model is scripted: it makes the calls that solve the task, in as few rounds as the way allows. Tokens are the
//! bytes of requests and replies divided by four. docs/code-mode.md has the table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use crate::agent::{ScriptedModel, call, stream};
use crate::support::gateway::{Gateway, OWNER};

/// Customers of the shop, and orders of the first one.
const CUSTOMERS: usize = 6;
/// Most that a figure of the page may be off: descriptions of tools change.
const TOLERANCE: f64 = 0.05;

/// A task, and the calls that solve it.
struct Task {
    text: String,
    /// Queries that find its tools.
    queries: Vec<&'static str>,
    /// Rounds of calls: the name of a tool and its arguments.
    rounds: Vec<Vec<(&'static str, Json)>>,
    /// A program that does the same, and what it prints.
    program: String,
    output: String,
}

fn order_count(customer: usize) -> usize {
    4 + customer * 3 % 7
}

fn amount(customer: usize, order: usize) -> usize {
    (customer * 37 + order * 53) % 200 + 10
}

fn status(customer: usize, order: usize) -> &'static str {
    ["open", "paid", "late"][(customer + order) % 3]
}

fn invoiced(customer: usize, order: usize) -> usize {
    amount(customer, order) + usize::from(customer * order % 5 == 4)
}

fn id(customer: usize, order: usize) -> String {
    format!("o{customer}-{order}")
}

fn orders(customer: usize) -> std::ops::Range<usize> {
    0..order_count(customer)
}

fn get_orders(customer: usize) -> Vec<(&'static str, Json)> {
    orders(customer).map(|order| ("get_order", json!({ "order": id(customer, order) }))).collect()
}

fn list(customer: usize) -> (&'static str, Json) {
    ("list_orders", json!({ "customer": format!("c{customer}") }))
}

fn total(customer: usize) -> usize {
    orders(customer).map(|order| amount(customer, order)).sum()
}

/// Ten kinds of tasks, each with three sets of values.
fn tasks() -> Vec<Task> {
    (0..3).flat_map(tasks_about).collect()
}

fn tasks_about(k: usize) -> Vec<Task> {
    let other = k + 3;
    let max = orders(k).max_by_key(|order| amount(k, *order)).expect("an order");
    let late = |customer: usize| orders(customer).filter(|order| status(customer, *order) == "late").count();
    let with_late: Vec<usize> = (0..CUSTOMERS).filter(|customer| late(*customer) > 2).collect();
    let wrong: Vec<String> = orders(k)
        .filter(|order| amount(k, *order) != invoiced(k, *order))
        .map(|order| id(k, order))
        .collect();
    let fetch = format!("orders = [get_order(o['id']) for o in list_orders('c{k}')['orders']]\n");
    let both: Vec<_> = get_orders(k).into_iter().chain(get_orders(other)).collect();
    let invoices = orders(k).map(|order| ("get_invoice", json!({ "order": id(k, order) })));
    let reminders: Vec<_> = with_late
        .iter()
        .map(|customer| {
            ("send_reminder", json!({ "customer": format!("c{customer}"), "text": "Please pay." }))
        })
        .collect();
    let hours = |range: std::ops::Range<usize>| {
        range
            .map(|hour| ("read_sensor", json!({ "sensor": format!("s{k}"), "hour": hour })))
            .collect::<Vec<_>>()
    };
    let temperature: usize = (0..24).map(|hour| 10 + (k * 7 + hour * 3) % 15).sum();
    vec![
        Task {
            text: format!("What do all orders of customer c{k} cost together?"),
            queries: vec!["orders of a customer", "amount of an order"],
            rounds: vec![vec![list(k)], get_orders(k)],
            program: fetch.clone() + "print(sum(o['amount'] for o in orders))",
            output: total(k).to_string(),
        },
        Task {
            text: format!("Which order of customer c{k} is the most expensive one?"),
            queries: vec!["orders of a customer", "amount of an order"],
            rounds: vec![vec![list(k)], get_orders(k)],
            program: fetch.clone() + "print(max(orders, key=lambda o: o['amount'])['id'])",
            output: id(k, max),
        },
        Task {
            text: format!("How many orders of customer c{k} are late?"),
            queries: vec!["orders of a customer"],
            rounds: vec![vec![list(k)]],
            program: format!("print(sum(o['status'] == 'late' for o in list_orders('c{k}')['orders']))"),
            output: late(k).to_string(),
        },
        Task {
            text: format!("Did customer c{k} or c{other} order for more money, and for how much?"),
            queries: vec!["orders of a customer", "amount of an order"],
            rounds: vec![vec![list(k), list(other)], both],
            program: format!(
                "totals = {{c: sum(get_order(o['id'])['amount'] for o in list_orders(c)['orders']) for c in ('c{k}', 'c{other}')}}\nprint(totals)"
            ),
            output: format!("{{'c{k}': {}, 'c{other}': {}}}", total(k), total(other)),
        },
        Task {
            text: format!("What do all orders of customer c{k} cost together, in euros?"),
            queries: vec!["orders of a customer", "amount of an order", "convert currency"],
            rounds: vec![vec![list(k)], get_orders(k), vec![("convert", json!({ "amount": total(k), "to": "EUR" }))]],
            program: fetch.clone() + "print(convert(sum(o['amount'] for o in orders), 'EUR')['amount'])",
            output: (total(k) * 2).to_string(),
        },
        Task {
            text: format!("Who ordered o{k}-1, and how many orders does that customer have?"),
            queries: vec!["customer of an order", "orders of a customer"],
            rounds: vec![vec![("get_order", json!({ "order": id(k, 1) }))], vec![list(k)]],
            program: format!(
                "customer = get_order('o{k}-1')['customer']\nprint(customer, len(list_orders(customer)['orders']))"
            ),
            output: format!("c{k} {}", order_count(k)),
        },
        Task {
            text: format!("For which orders of customer c{k} does the invoice differ from the order?"),
            queries: vec!["orders of a customer", "amount of an order", "invoice of an order"],
            rounds: vec![vec![list(k)], get_orders(k).into_iter().chain(invoices).collect()],
            program: fetch + "print([o['id'] for o in orders if get_invoice(o['id'])['amount'] != o['amount']])",
            output: format!("{wrong:?}").replace('"', "'"),
        },
        Task {
            text: format!("Remind every customer with more than two late orders, please ({k})."),
            queries: vec!["list customers", "orders of a customer", "remind a customer"],
            rounds: vec![vec![("list_customers", json!({}))], (0..CUSTOMERS).map(list).collect(), reminders],
            program: "sent = []\nfor c in list_customers()['customers']:\n    late = [o for o in list_orders(c['id'])['orders'] if o['status'] == 'late']\n    if len(late) > 2:\n        send_reminder(c['id'], 'Please pay.')\n        sent.append(c['id'])\nprint(sent)".to_owned(),
            output: format!("[{}]", with_late.iter().map(|c| format!("'c{c}'")).collect::<Vec<_>>().join(", ")),
        },
        Task {
            text: format!("How often does the report r{k} mention `gateway`, on its four pages?"),
            queries: vec!["read a page of a report"],
            rounds: vec![
                (0..4).map(|page| ("read_report", json!({ "report": format!("r{k}"), "page": page }))).collect(),
            ],
            program: format!("print(sum(read_report('r{k}', page)['text'].count('gateway') for page in range(4)))"),
            output: (0..4).map(|page| 5 + k + page).sum::<usize>().to_string(),
        },
        Task {
            text: format!("What is the mean temperature of sensor s{k} over the 24 hours of the day?"),
            queries: vec!["temperature of a sensor"],
            rounds: vec![hours(0..24)],
            program: format!("print(sum(read_sensor('s{k}', hour)['celsius'] for hour in range(24)) / 24)"),
            output: format!("{:?}", temperature as f64 / 24.0),
        },
    ]
}

/// The tools of the shop, as Python functions with the data of the tasks, and their definitions.
fn shop_tools() -> Vec<(&'static str, Json, &'static str)> {
    let text = |about: &str| json!({ "type": "string", "description": about });
    let number = |about: &str| json!({ "type": "integer", "description": about });
    let object = |properties: Json| json!({ "type": "object", "properties": properties });
    let tool = |about: &str, arguments: Json, output: Json| {
        let required: Vec<String> = arguments.as_object().expect("a map").keys().cloned().collect();
        json!({ "description": about, "input_schema": { "type": "object", "properties": arguments, "required": required },
            "output_schema": output })
    };
    let order = json!({ "id": text("Its id."), "customer": text("Its customer."), "amount": number("What it costs, in dollars.") });
    let brief = object(json!({ "id": text("Its id."), "status": text("`open`, `paid` or `late`.") }));
    vec![
        (
            "list_customers",
            tool(
                "Lists all customers of the shop.",
                json!({}),
                object(
                    json!({ "customers": { "type": "array", "items": object(json!({ "id": text("Its id.") })) } }),
                ),
            ),
            "return {'customers': [{'id': f'c{k}', 'name': f'Customer {k}', 'notes': 'Has been with us for years. ' * 5} for k in range(6)]}",
        ),
        (
            "list_orders",
            tool(
                "Lists the orders of a customer, with their status.",
                json!({ "customer": text("Id of the customer.") }),
                object(json!({ "orders": { "type": "array", "items": brief } })),
            ),
            "k = int(args['customer'][1:])\n    return {'orders': [{'id': f'o{k}-{i}', 'status': ['open', 'paid', 'late'][(k + i) % 3], 'placed': '2026-01-01', 'address': 'Some Street 5, 12345 Town'} for i in range(4 + k * 3 % 7)]}",
        ),
        (
            "get_order",
            tool(
                "Returns an order: its customer, its amount and its items.",
                json!({ "order": text("Id of the order.") }),
                object(order),
            ),
            "k, i = map(int, args['order'][1:].split('-'))\n    return {'id': args['order'], 'customer': f'c{k}', 'amount': (k * 37 + i * 53) % 200 + 10, 'items': [{'sku': f'sku-{n}', 'title': 'An article of our shop', 'count': n} for n in range(1, 6)]}",
        ),
        (
            "get_invoice",
            tool(
                "Returns the invoice of an order.",
                json!({ "order": text("Id of the order.") }),
                object(json!({ "amount": number("Its amount, in dollars.") })),
            ),
            "k, i = map(int, args['order'][1:].split('-'))\n    return {'order': args['order'], 'amount': (k * 37 + i * 53) % 200 + 10 + (1 if k * i % 5 == 4 else 0), 'due': '2026-02-01', 'lines': ['as ordered'] * 5}",
        ),
        (
            "convert",
            tool(
                "Converts an amount of dollars to another currency.",
                json!({ "amount": number("Dollars."), "to": text("Currency, such as EUR.") }),
                object(json!({ "amount": number("The amount.") })),
            ),
            "return {'amount': args['amount'] * 2}",
        ),
        (
            "send_reminder",
            tool(
                "Sends a customer a reminder of late orders.",
                json!({ "customer": text("Id of the customer."), "text": text("The message.") }),
                object(json!({ "sent": { "type": "boolean" } })),
            ),
            "return {'sent': True}",
        ),
        (
            "read_report",
            tool(
                "Reads a page of a report.",
                json!({ "report": text("Id of the report."), "page": number("Number of the page, from 0.") }),
                object(json!({ "text": text("The text of the page.") })),
            ),
            "return {'text': 'The gateway is fine. ' * (5 + int(args['report'][1:]) + args['page']) + 'Nothing else happened today. ' * 80}",
        ),
        (
            "read_sensor",
            tool(
                "Returns the temperature that a sensor measured in an hour of the day.",
                json!({ "sensor": text("Id of the sensor."), "hour": number("Hour, from 0 to 23.") }),
                object(json!({ "celsius": number("Degrees Celsius.") })),
            ),
            "return {'sensor': args['sensor'], 'hour': args['hour'], 'celsius': 10 + (int(args['sensor'][1:]) * 7 + args['hour'] * 3) % 15}",
        ),
    ]
}

/// Tools that no task needs: every catalog has them.
fn other_tools() -> Vec<(String, Json)> {
    let things = [
        "calendar event",
        "support ticket",
        "wiki page",
        "build job",
        "employee record",
        "git branch",
        "chat channel",
        "expense claim",
    ];
    let verbs = [("create", "Creates"), ("update", "Changes"), ("delete", "Removes"), ("search", "Finds")];
    let mut tools = Vec::new();
    for thing in things {
        for (verb, says) in verbs {
            let name = format!("{verb}_{}", thing.replace(' ', "_"));
            let about =
                format!("{says} a {thing}, with the rights of the caller. Returns the id and a summary.");
            let properties = json!({
                "title": { "type": "string", "description": format!("Title of the {thing}.") },
                "details": { "type": "string", "description": "Details, as plain text." },
                "owner": { "type": "string", "description": "Id of the person that is responsible." },
            });
            let schema = json!({ "type": "object", "properties": properties, "required": ["title"] });
            tools.push((name, json!({ "description": about, "input_schema": schema })));
        }
    }
    tools
}

/// Starts a gateway whose agent offers its tools in this way.
fn start_gateway(model: &ScriptedModel, exposure: &str) -> Gateway {
    let mut tools = Vec::new();
    let mut files = Vec::new();
    for (name, mut tool, body) in shop_tools() {
        tool["name"] = name.into();
        tool["idempotent"] = (name != "send_reminder").into();
        tool["script_path"] = format!("{name}.py").into();
        files.push((format!("tools/{name}.py"), format!("def run(args):\n    {body}\n")));
        tools.push(tool);
    }
    for (name, mut tool) in other_tools() {
        tool["name"] = name.into();
        tool["script_path"] = "convert.py".into();
        tools.push(tool);
    }
    let config = json!({ "name": "shop", "registries": { "tools": "tools/tools.json" },
        "agent": { "model": model.model(), "exposure": exposure },
        "code_execution": { "enabled": true, "timeout": "10m" } });
    let program = crate::support::program::Program::new(&[
        ("toolgate.yaml", &config.to_string()),
        ("tools/tools.json", &json!({ "tools": tools }).to_string()),
    ]);
    for (path, text) in &files {
        program.write(path, text);
    }
    Gateway::serve(program.with("TOOLGATE_LOG", "off").with("TOOLGATE_API_KEY", OWNER))
}

/// The turns of a scripted model that solves a task.
fn turns(task: &Task, exposure: &str) -> Vec<Json> {
    let numbered = |calls: &[(&str, Json)]| {
        let calls = calls
            .iter()
            .enumerate()
            .map(|(at, (name, arguments))| call(&format!("c{at}"), name, arguments.clone()));
        json!({ "calls": calls.collect::<Vec<_>>() })
    };
    let queries = |tool: &'static str| {
        task.queries.iter().map(|query| (tool, json!({ "query": query }))).collect::<Vec<_>>()
    };
    let mut turns = match exposure {
        "code" => vec![
            numbered(&queries("find_functions")),
            numbered(&[("run_code", json!({ "code": task.program }))]),
        ],
        "search" => vec![numbered(&queries("search_tools"))],
        _ => Vec::new(),
    };
    if exposure != "code" {
        turns.extend(task.rounds.iter().map(|round| numbered(round)));
    }
    turns.push(json!({ "text": format!("The answer is {}.", task.output) }));
    turns
}

/// Sums of one way to offer tools.
#[derive(Debug, Default, Clone, Copy)]
struct Costs {
    rounds: usize,
    calls: usize,
    input: usize,
    output: usize,
}

fn measure(exposure: &str, tasks: &[Task]) -> Costs {
    let script: Vec<Vec<Json>> = tasks.iter().map(|task| turns(task, exposure)).collect();
    let model = ScriptedModel::start(&Json::Array(script.iter().flatten().cloned().collect()));
    let gateway = start_gateway(&model, exposure);
    let mut costs = Costs::default();
    for task in tasks {
        let events = stream(&gateway, OWNER, &json!({ "task": task.text }));
        assert!(events.contains("\"reason\":\"done\""), "{}: {events}", task.text);
        assert!(!events.contains("\"failed\":true"), "{}: {events}", task.text);
        if exposure == "code" {
            let printed = format!("\"text\":\"{}\\n", task.output);
            assert!(events.contains(&printed), "{}: {printed}: {events}", task.text);
        }
        let ended = events.rsplit("\"calls\":").next().expect("an end");
        let calls: String = ended.chars().take_while(char::is_ascii_digit).collect();
        costs.calls += calls.parse::<usize>().expect("a number");
    }
    for body in model.seen() {
        costs.rounds += 1;
        costs.input += body.to_string().len() / 4;
    }
    for turn in script.iter().flatten() {
        let text = turn["text"].as_str().map_or(0, str::len);
        let calls = turn["calls"].as_array().into_iter().flatten();
        let calls: usize =
            calls.map(|call| call["name"].to_string().len() + call["arguments"].to_string().len()).sum();
        costs.output += (text + calls) / 4;
    }
    costs
}

fn table(all: &BTreeMap<&str, Costs>, tasks: usize) -> String {
    let mut text =
        "| Exposure | Rounds | Calls | Input tokens | Output tokens |\n| --- | ---: | ---: | ---: | ---: |\n"
            .to_owned();
    for (name, costs) in all {
        let mean = |sum: usize| sum as f64 / tasks as f64;
        let Costs { rounds, calls, input, output } = *costs;
        let _ = writeln!(
            text,
            "| `{name}` | {:.1} | {:.1} | {:.0} | {:.0} |",
            mean(rounds),
            mean(calls),
            mean(input),
            mean(output)
        );
    }
    text
}

/// The numbers of a table, row by row.
fn numbers(table: &str) -> Vec<f64> {
    table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .flat_map(|line| line.split('|').skip(2))
        .filter_map(|cell| cell.trim().parse().ok())
        .collect()
}

#[test]
fn costs_of_exposures_are_those_of_the_page() {
    let tasks = tasks();
    assert_eq!(tasks.len(), 30);
    let measured = std::thread::scope(|scope| {
        let started =
            ["code", "full", "search"].map(|exposure| (exposure, scope.spawn(|| measure(exposure, &tasks))));
        started.map(|(exposure, thread)| (exposure, thread.join().expect("it is measured")))
    });
    let all: BTreeMap<&str, Costs> = measured.into_iter().collect();
    let found = table(&all, tasks.len());
    let page = fs_err::read_to_string("../../docs/code-mode.md").unwrap_or_default();
    let (due, known) = (numbers(&found), numbers(&page));
    let fits = due.len() == known.len()
        && due.iter().zip(&known).all(|(due, known)| (due - known).abs() <= TOLERANCE * due.max(1.0));
    assert!(fits, "the table of docs/code-mode.md is now:\n{found}");
    assert!(all["code"].input < all["full"].input && all["code"].rounds < all["search"].rounds, "{found}");
}
