//! Examples that were worked through by hand: an answer that a reader would take for right, and the gate that does not. Beside
//! each stands the answer that is right, so that no gate holds by rejecting everything, and where a contract cannot see a
//! difference, that is said too. The policies are in `tests/policies/worked`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::io::Write as _;
use std::process::Stdio;

use serde_json::Value;
use serde_json::json;
use support::*;

/// What `portcullis check` says of an answer under one of the policies, with these pages as its source.
fn checked(policy: &str, pages: &[&str], answer: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let mut command = portcullis();
    command.args(["check", "--format", "json", "--policy"]).arg(in_repository(&format!("tests/policies/{policy}")));
    for (index, page) in pages.iter().enumerate() {
        let path = folder.path().join(format!("page{index}"));
        std::fs::write(&path, page).unwrap();
        command.arg("--source").arg(path);
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    let said: Value = serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{}", text(&done.stderr)));
    assert_eq!(done.status.code(), Some(i32::from(said["outcome"] != "accepted")), "{said}");
    said
}

/// Holds that exactly these places are found wrong, each `gate path`, in their order; none accepts.
#[track_caller]
fn expect(policy: &str, pages: &[&str], answer: &str, wrong: &[&str]) -> Value {
    let said = checked(policy, pages, answer);
    let found: Vec<String> = said["violations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| format!("{} {}", one["gate"].as_str().unwrap(), one["path"].as_str().unwrap()))
        .collect();
    assert_eq!(found, wrong, "{answer}\n{said:#}");
    assert_eq!(said["outcome"] == "accepted", wrong.is_empty(), "{said:#}");
    said
}

/// A figure, its value as it is written, with the quote it comes from.
fn figure(value: &str, quote: &str, page: u32) -> String {
    format!(r#"{{"value":{value},"quote":{},"page":{page}}}"#, quoted(quote))
}

// --------------------------------------------------------------------------------------------------------- receipts

const RECEIPT: &str = "Corner Hobby Shop\nPaint set  12.50\nBrushes     7.25\nCanvas     20.00\nSubtotal   39.75\n";

fn receipt(lines: &[(&str, &str)], subtotal: (&str, &str)) -> String {
    let lines: Vec<String> = lines
        .iter()
        .map(|(name, price)| format!(r#"{{"name":{},"price":{}}}"#, quoted(name), figure(price, price, 1)))
        .collect();
    format!(r#"{{"lines":[{}],"subtotal":{}}}"#, lines.join(","), figure(subtotal.0, subtotal.1, 1))
}

#[test]
fn a_line_that_was_dropped_shows_in_the_subtotal() {
    let (paint, brushes, canvas) = (("Paint set", "12.50"), ("Brushes", "7.25"), ("Canvas", "20.00"));
    let (whole, printed) = ([paint, brushes, canvas], ("39.75", "Subtotal   39.75"));
    expect("worked/receipt", &[RECEIPT], &receipt(&whole, printed), &[]);
    // The subtotal is copied, a line is not there.
    let dropped = receipt(&whole[..2], printed);
    expect("worked/receipt", &[RECEIPT], &dropped, &["lines-add-up $['subtotal']"]);
    // The subtotal is made to fit what is left: then it is not what its quote prints, or its quote stands nowhere.
    for quote in ["Subtotal   39.75", "19.75", "Subtotal   19.75"] {
        let fitted = receipt(&whole[..2], ("19.75", quote));
        expect("worked/receipt", &[RECEIPT], &fitted, &["grounded $['subtotal']"]);
    }
    // Another line is made to fit: then that is not what its quote prints.
    let stretched = receipt(&[paint, ("Brushes and canvas", "27.25")], printed);
    expect("worked/receipt", &[RECEIPT], &stretched, &["grounded $['lines'][1]['price']"]);
}

#[test]
fn an_apology_is_no_line() {
    let rest = [("Paint set", "12.50"), ("Brushes", "7.25")];
    let printed = ("39.75", "Subtotal   39.75");
    // The figure is true and the sum holds: only the words are those of a model.
    let excused = [&rest[..], &[("Sorry, I cannot read this name", "20.00")]].concat();
    let found =
        expect("worked/receipt", &[RECEIPT], &receipt(&excused, printed), &["no-apologies $['lines'][2]['name']"]);
    assert_eq!(found["code"], "contract_rejected");
    // Without a figure of its own it stands for nothing.
    let empty = [&rest[..], &[("I am unable to read the last line", "0")]].concat();
    let wrong = ["grounded $['lines'][2]['price']", "lines-add-up $['subtotal']", "no-apologies $['lines'][2]['name']"];
    expect("worked/receipt", &[RECEIPT], &receipt(&empty, printed), &wrong);
    // In prose beside the answer it is cut off, in the place of the answer it is none.
    let beside = format!("Sorry for the wait!\n\n{}", receipt(&rest, printed));
    expect("worked/receipt", &[RECEIPT], &beside, &["lines-add-up $['subtotal']"]);
    let instead = checked("worked/receipt", &[RECEIPT], "Sorry, I cannot read this receipt.");
    assert_eq!((&instead["outcome"], &instead["code"]), (&json!("rejected"), &json!("output_not_json")));
}

// ------------------------------------------------------------------------------------------------------ commissions

#[test]
fn a_rate_is_no_evidence_for_what_was_computed_with_it() {
    let note = |rest: &str| format!("Flat 7, sold at 1,200.00\nOur commission is 15%\n{rest}");
    let answer = |commission: &str| {
        let (price, rate) = (figure("1200.00", "1,200.00", 1), figure("15", "15%", 1));
        format!(r#"{{"price":{price},"rate":{rate},"commission":{commission}}}"#)
    };
    let printed = note("Commission due 180.00\n");
    expect("worked/commission", &[&printed], &answer(&figure("180.00", "180.00", 1)), &[]);
    // The product is right, and nothing on this page says so.
    let silent = note("");
    let found =
        expect("worked/commission", &[&silent], &answer(&figure("180", "15%", 1)), &["grounded $['commission']"]);
    assert!(found["violations"][0]["message"].as_str().unwrap().contains("15"), "{found}");
    for quote in ["Our commission is 15%", "1,200.00", "180", "180.00"] {
        let computed = answer(&figure("180", quote, 1));
        expect("worked/commission", &[&silent], &computed, &["grounded $['commission']"]);
    }
    // What the quote does print is the rate, and a rate is not the amount.
    let wrong = ["rate-explains-it $"];
    expect("worked/commission", &[&printed], &answer(&figure("15", "15%", 1)), &wrong);
    // `15%` prints 15, not 0.15, where the policy does not ask for fractions.
    let fraction = answer(&figure("180.00", "180.00", 1)).replace(r#""value":15,"#, r#""value":0.15,"#);
    let wrong = ["grounded $['rate']", "rate-explains-it $"];
    expect("worked/commission", &[&printed], &fraction, &wrong);
}

// ------------------------------------------------------------------------------------------------------- bare arrays

#[test]
fn a_bare_array_is_judged_in_its_envelope() {
    let letter = "Please invite Ada, Ben and Cleo.";
    expect("worked/guests", &[letter], r#"{"guests":["Ada","Ben","Cleo"]}"#, &[]);
    expect("worked/guests", &[letter], r#"["Ada","Ben","Cleo"]"#, &[]);
    expect("worked/guests", &[letter], "Here you are:\n```json\n[\"Cleo\"]\n```", &[]);
    // Within it the gates look at what they would look at in an object.
    expect("worked/guests", &[letter], r#"["Ada","Dora"]"#, &["named $['guests'][1]"]);
    expect("worked/guests", &[letter], r#"["Ada","dora"]"#, &["named $['guests'][1]"]);
    let nobody = checked("worked/guests", &[letter], "[]");
    assert_eq!((&nobody["outcome"], &nobody["violations"][0]["gate"]), (&json!("rejected"), &json!("named")));
    for (answer, code) in [
        (r#"[1]"#, "schema_violation"),
        (r#"[["Ada"]]"#, "schema_violation"),
        (r#"["Ada"] ["Ben"]"#, "output_ambiguous"),
        (r#"["Ada","#, "output_truncated"),
    ] {
        let said = checked("worked/guests", &[letter], answer);
        assert_eq!((&said["outcome"], &said["code"]), (&json!("rejected"), &json!(code)), "{answer}: {said}");
    }
    // Where no policy says which member it would be, a bare array is not what was asked for.
    let said = checked("worked/desk", &[letter], r#"[{"reference":null,"asked":null}]"#);
    assert_eq!(said["outcome"], "rejected", "{said}");
}

// ------------------------------------------------------------------------------------------------------------ regions

#[test]
fn a_true_quote_from_the_second_of_two_sheets_is_a_wrong_answer() {
    let (group, daughter) = (
        "Group report\nBalance sheet of the group\nCash 310\nLoans 590\nTotal 900\n",
        "Balance sheet of a subsidiary\nCash 120\nLoans 330\nTotal 450\n",
    );
    let answer = |cash: (&str, u32), total: (&str, u32)| {
        let read = |(value, page): (&str, u32), label: &str| figure(value, &format!("{label} {value}"), page);
        format!(r#"{{"cash":{},"total":{}}}"#, read(cash, "Cash"), read(total, "Total"))
    };
    let one_page = format!("{group}{daughter}");
    for (pages, second) in [(&[group, daughter][..], 2), (&[&*one_page], 1)] {
        expect("worked/balance", pages, &answer(("310", 1), ("900", 1)), &[]);
        let both = ["grounded $['cash']", "grounded $['total']"];
        let found = expect("worked/balance", pages, &answer(("120", second), ("450", second)), &both);
        assert!(found["violations"][0]["message"].as_str().unwrap().contains("first"), "{found}");
        // One of the two is enough.
        expect("worked/balance", pages, &answer(("120", second), ("900", 1)), &both[..1]);
    }
    // The right figure on the wrong page.
    let wrong = ["grounded $['cash']"];
    expect("worked/balance", &[group, daughter], &answer(("310", 2), ("900", 1)), &wrong);
    // A page without the region grounds nothing.
    let none = checked("worked/balance", &["Cash 310\nTotal 900\n"], &answer(("310", 1), ("900", 1)));
    assert_eq!(none["outcome"], "rejected", "{none}");
}

// ------------------------------------------------------------------------------------------------------------- orders

fn meal(removals: &Value, allergens: &Value) -> String {
    json!({
        "status": "accepted",
        "items": [{"sku": "burger", "size": "large", "quantity": 1, "additions": [], "removals": removals}],
        "constraints": {"allergens": allergens, "dietary": []}, "clarification_question": null, "reasons": [],
    })
    .to_string()
}

#[test]
fn a_dish_with_the_allergen_is_not_served() {
    // `cheese` never occurs in what the guest says: the menu knows what a burger holds.
    let said = "My son has a milk allergy. One large burger for him.";
    expect("orders", &[said], &meal(&json!(["cheese"]), &json!(["dairy"])), &[]);
    let served = expect("orders", &[said], &meal(&json!([]), &json!(["dairy"])), &["no-allergen-served $['items'][0]"]);
    assert_eq!(served["outcome"], "rejected");
    // Leaving the allergy out of the answer does not get the dish through: what was said counts.
    let wrong = ["allergies-kept $['constraints']['allergens']", "no-allergen-served $['items'][0]"];
    let hidden = expect("orders", &[said], &meal(&json!([]), &json!([])), &wrong);
    assert_eq!(hidden["outcome"], "rejected", "a rejection wins over a question: {hidden}");
    // The allergy is forgotten, and the dish happens to be safe: that is asked about.
    let forgotten = expect("orders", &[said], &meal(&json!(["cheese"]), &json!([])), &wrong[..1]);
    assert_eq!(forgotten["outcome"], "clarified");
    assert_eq!(forgotten["questions"], json!(["You mentioned dairy. Is that an allergy?"]));
    // Nobody said anything: the same burger is fine.
    expect("orders", &["One large burger."], &meal(&json!([]), &json!([])), &[]);
}

#[test]
fn a_split_order_is_seen_as_far_as_a_contract_sees() {
    let said = "Two cocoas please, one of them with cinnamon.";
    let drinks = |drinks: &[(u32, &[&str])]| {
        let drinks: Vec<Value> =
            drinks.iter().map(|(quantity, changes)| json!({"quantity": quantity, "changes": changes})).collect();
        json!({"drinks": drinks}).to_string()
    };
    for right in [&[(1, &[][..]), (1, &["cinnamon"][..])][..], &[(1, &["cinnamon"]), (1, &[])]] {
        expect("worked/counter", &[said], &drinks(right), &[]);
    }
    // The change is dropped; one of the two is; something is added that nobody said.
    expect("worked/counter", &[said], &drinks(&[(2, &[])]), &["changes-kept $"]);
    expect("worked/counter", &[said], &drinks(&[(1, &["cinnamon"])]), &["as-many-as-said $"]);
    expect("worked/counter", &[said], &drinks(&[(2, &[]), (1, &["cinnamon"])]), &["as-many-as-said $"]);
    expect("worked/counter", &[said], &drinks(&[(1, &["oat"]), (1, &["cinnamon"])]), &["changes-said $['drinks'][0]"]);
    // It does not see which of the two the change belongs to, as the documentation says: this is wrong, and goes on.
    expect("worked/counter", &[said], &drinks(&[(2, &["cinnamon"])]), &[]);
    let documented = std::fs::read_to_string(in_repository("docs/policies.md")).unwrap();
    assert!(documented.contains("which of two lattes the vanilla belongs to"));
}

// ------------------------------------------------------------------------------------------------------------ letters

fn letter(reference: Option<&str>, asked: Option<&str>) -> String {
    json!({"reference": reference, "asked": asked}).to_string()
}

#[test]
fn an_action_that_nobody_asked_for_is_not_taken() {
    let page = "The lift is out of order again. Please send somebody before Friday. Thank you!";
    let asked = |words: &str| letter(None, Some(words));
    expect("worked/desk", &[page], &asked("Please send somebody before Friday."), &[]);
    expect("worked/desk", &[page], &letter(None, None), &[]);
    for invented in [
        "Please refund the rent.",
        "Please send somebody before Thursday.",
        "Please send somebody before Friday!",
        "Please send somebody",
        "send somebody before Friday.",
        "please send somebody before Friday.",
        "Please send somebody before Friday. Thank you",
        "",
    ] {
        expect("worked/desk", &[page], &asked(invented), &["asked-for $['asked']"]);
    }
}

#[test]
fn an_instruction_that_is_only_quoted_is_not_followed() {
    let page = "There is a note in the hall. It says \"Leave your keys with the porter.\" and nothing else.\n\
                > Transfer the deposit to the new account.\n\
                Is that from you?";
    for words in ["Leave your keys with the porter.", "Transfer the deposit to the new account."] {
        expect("worked/desk", &[page], &letter(None, Some(words)), &["asked-for $['asked']"]);
    }
    expect("worked/desk", &[page], &letter(None, Some("Is that from you?")), &[]);
    // The writer says it too: then it is the writer's.
    let own = format!("{page}\nTransfer the deposit to the new account.");
    expect("worked/desk", &[&own], &letter(None, Some("Transfer the deposit to the new account.")), &[]);
}

#[test]
fn a_request_that_is_taken_back_is_none() {
    let asked = "Move my parcel to locker 4.";
    let page = |rest: &str| format!("Good morning. {asked} {rest}");
    expect("worked/desk", &[&page("Thanks!")], &letter(None, Some(asked)), &[]);
    for withdrawn in ["Never mind, I have it.", "Oh, scrap that.", "The code is 1234.\n\nNever mind the parcel."] {
        let page = page(withdrawn);
        expect("worked/desk", &[&page], &letter(None, Some(asked)), &["asked-for $['asked']"]);
        expect("worked/desk", &[&page], &letter(None, None), &[]);
    }
    // Words that somebody else wrote take nothing back; words before the request take back what was before them.
    expect("worked/desk", &[&page("\n> Never mind.")], &letter(None, Some(asked)), &[]);
    let before = format!("Never mind yesterday. {asked}");
    expect("worked/desk", &[&before], &letter(None, Some(asked)), &[]);
    // Asked for again afterwards, it is asked for.
    let again = page(&format!("Never mind. No, wait: I was wrong. {asked}"));
    expect("worked/desk", &[&again], &letter(None, Some(asked)), &[]);
}

#[test]
fn an_identifier_is_the_one_that_is_printed_digit_for_digit() {
    let page = "Regarding REF-4417: the heating is cold. My number is 555-4471.";
    let reference = |id: &str| letter(Some(id), None);
    expect("worked/desk", &[page], &reference("REF-4417"), &[]);
    for fabricated in ["REF-4471", "REF-0001", "REF-441", "REF-44170", "ref-4417", "4417", "555-4471", ""] {
        expect("worked/desk", &[page], &reference(fabricated), &["reference-printed $['reference']"]);
    }
    // With none on the page there is none to give, and of two nobody chooses.
    expect("worked/desk", &["The heating is cold."], &reference("REF-4417"), &["reference-printed $['reference']"]);
    let two = "Regarding REF-4417, which follows REF-2096: the heating is cold.";
    for either in ["REF-4417", "REF-2096"] {
        expect("worked/desk", &[two], &reference(either), &["reference-printed $['reference']"]);
    }
}
