#!/usr/bin/env python3
"""What a stock `openai` Python SDK gets through the gateway. Run by `stack.py`, under any major of the SDK."""

import asyncio
import json
import os
import sys
import time
import unittest
import urllib.parse
import urllib.request
import uuid

import openai
from pydantic import BaseModel, ConfigDict

GATEWAY = os.environ["GATEWAY_URL"] + "/v1"
UPSTREAM = os.environ["UPSTREAM_URL"]
ASK = [
    {"role": "system", "content": "You fill in forms."},
    {"role": "user", "content": "Who is Ada, and how old?"},
]


class Person(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    age: int
    ratio: float
    serial: int
    tags: list[str]


class Weather(BaseModel):
    """The forecast for a city."""

    model_config = ConfigDict(extra="forbid")
    city: str
    days: int


WEATHER_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
PERSON_FORMAT = {
    "type": "json_schema",
    "json_schema": {
        "name": "person",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "age": {"type": "integer"},
                "ratio": {"type": "number"},
                "serial": {"type": "integer"},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["name", "age", "ratio", "serial", "tags"],
            "additionalProperties": False,
        },
    },
}
ACCEPTED = ["clean", "fenced", "preamble", "think", "slow"]
REJECTED = {
    "prose": "output_not_json",
    "broken": "output_not_json",
    "duplicate": "output_duplicate_key",
    "ambiguous": "output_ambiguous",
    "wrong_type": "schema_violation",
    "wrong_fenced": "schema_violation",
    "length": "output_truncated",
    "length_whole": "output_truncated",
}
CALLS_REJECTED = ["tool_bad", "tool_broken", "tool_fenced", "tool_unknown", "tools_one_bad"]


def fetch(path: str):
    with urllib.request.urlopen(UPSTREAM + path, timeout=10) as answer:
        return json.load(answer)


SCRIPT = fetch("/script")


def fresh(behaviour: str) -> str:
    """A model's name that no other test uses, for a behaviour of the scripted upstream."""
    return f"{behaviour}--{uuid.uuid4().hex[:12]}"


def calls(model: str) -> dict:
    return fetch("/calls").get(model, {"calls": 0, "done": 0, "cancelled": 0})


def objects_in(text: str) -> list[dict]:
    """The JSON objects that stand in a text, outermost ones only."""
    found, start = [], 0
    while (start := text.find("{", start)) >= 0:
        try:
            value, start = json.JSONDecoder().raw_decode(text, start)
            found.append(value)
        except ValueError:
            start += 1
    return found


def tool(name: str = "Weather", strict: bool | None = None) -> dict:
    function = {"name": name, "description": "The forecast for a city.", "parameters": WEATHER_SCHEMA}
    return {"type": "function", "function": function | ({} if strict is None else {"strict": strict})}


FORCED = {"type": "function", "function": {"name": "Weather"}}


class Case(unittest.TestCase):
    def setUp(self):
        self.sent = []
        http = openai.DefaultHttpxClient(event_hooks={"request": [self.sent.append]})
        self.client = openai.OpenAI(base_url=GATEWAY, api_key=os.environ["CLIENT_KEY"], http_client=http, timeout=30)
        self.addCleanup(self.client.close)
        self.chat = self.client.chat.completions

    def raises(self, kind, call):
        """The exception, of exactly this kind. Whatever the SDK would have raised for a wrong answer is none of them."""
        try:
            got = call()
        except openai.APIError as error:
            self.assertIs(type(error), kind, error)
            return error
        self.fail(f"no error, but {got!r}")

    def assert_one_call(self, model: str, before: int = 0):
        """Neither the gateway nor the SDK tried again."""
        self.assertEqual(len(self.sent), 1, "requests that the SDK made")
        self.assertEqual(calls(model)["calls"] - before, 1, "calls that the upstream saw")

    def assert_rejected(self, error, code: str):
        self.assertEqual(error.status_code, 422)
        self.assertEqual(error.code, code)
        self.assertEqual(error.type, "contract_violation")
        self.assertEqual(error.response.headers["x-should-retry"], "false")
        self.assertEqual(error.response.headers["x-portcullis-outcome"], "rejected")
        self.assertTrue(error.request_id)
        detail = error.body["portcullis"]
        self.assertEqual(detail["outcome"], "rejected")
        self.assertEqual(detail["attempts"], 1)
        self.assertEqual(detail["violations_total"], len(detail["violations"]))
        if code in ("schema_violation", "tool_violation"):
            self.assertGreaterEqual(detail["violations_total"], 1)
        for violation in detail["violations"]:
            self.assertTrue(violation["message"])


class Accepted(Case):
    def test_create(self):
        for behaviour in ACCEPTED:
            with self.subTest(behaviour):
                self.sent.clear()
                model = fresh(behaviour)
                got = self.chat.create(model=model, messages=ASK, response_format=PERSON_FORMAT)
                self.assertEqual(got.choices[0].message.content, SCRIPT[behaviour]["slice"])
                self.assertEqual(got.choices[0].finish_reason, "stop")
                self.assertIsNone(got.choices[0].message.refusal)
                self.assertEqual(got.id, "chatcmpl-scripted")
                self.assertEqual(got.model, model)
                self.assertEqual(got.usage.total_tokens, 33)
                self.assertEqual(got.model_extra["x_scripted"], {"kept": [1.0, "é"]})
                self.assert_one_call(model)

    def test_parse(self):
        for behaviour in ACCEPTED:
            with self.subTest(behaviour):
                self.sent.clear()
                model = fresh(behaviour)
                got = self.chat.parse(model=model, messages=ASK, response_format=Person)
                message = got.choices[0].message
                self.assertEqual(message.content, SCRIPT[behaviour]["slice"])
                self.assertEqual(message.parsed, Person.model_validate_json(SCRIPT["clean"]["slice"]))
                self.assertEqual(message.parsed.serial, 12345678901234567890)
                self.assert_one_call(model)

    def test_json_object(self):
        model = fresh("fenced")
        got = self.chat.create(model=model, messages=ASK, response_format={"type": "json_object"})
        self.assertEqual(got.choices[0].message.content, SCRIPT["fenced"]["slice"])

    def test_headers(self):
        model = fresh("fenced")
        raw = self.chat.with_raw_response.create(model=model, messages=ASK, response_format=PERSON_FORMAT)
        self.assertEqual(raw.headers["x-portcullis-outcome"], "accepted")
        self.assertEqual(raw.headers["x-portcullis-backend"], "up")
        self.assertEqual(raw.headers["x-portcullis-native"], "json_schema")
        self.assertEqual(raw.headers["x-portcullis-attempts"], "1")
        self.assertEqual(raw.headers["x-portcullis-upstream-request-id"], "req_upstream")
        self.assertGreaterEqual(int(raw.headers["x-portcullis-overhead-us"]), 0)
        self.assertTrue(raw.headers["x-portcullis-request-id"])
        self.assertNotEqual(raw.headers["x-request-id"], "req_upstream")
        self.assertEqual(raw.parse().choices[0].message.content, SCRIPT["fenced"]["slice"])

    def test_what_the_upstream_is_sent(self):
        model = fresh("clean")
        extra = {"x_unknown": {"kept": [1, "ü"]}}
        self.chat.parse(model=model, messages=ASK, response_format=Person, temperature=0.25, extra_body=extra)
        seen = fetch("/last?" + urllib.parse.urlencode({"model": model}))
        self.assertEqual(seen["headers"]["authorization"], f"Bearer {os.environ['UPSTREAM_KEY']}")
        self.assertNotIn(os.environ["CLIENT_KEY"], json.dumps(seen))
        body = seen["body"]
        self.assertEqual(body["x_unknown"], extra["x_unknown"])
        self.assertEqual(body["temperature"], 0.25)
        self.assertEqual(body["response_format"]["type"], "json_schema")
        self.assertEqual(body["response_format"]["json_schema"]["name"], "Person")
        self.assertEqual([m["role"] for m in body["messages"]], ["system", "user"])
        self.assertEqual(body["messages"][1], ASK[1])
        self.assertTrue(body["messages"][0]["content"].startswith("You fill in forms."))
        self.assertIn(body["response_format"]["json_schema"]["schema"], objects_in(body["messages"][0]["content"]))

    def test_two_choices(self):
        model = fresh("fenced")
        got = self.chat.parse(model=model, messages=ASK, response_format=Person, n=2)
        self.assertEqual([c.message.content for c in got.choices], [SCRIPT["fenced"]["slice"]] * 2)
        self.assertEqual([c.message.parsed.age for c in got.choices], [36, 36])
        self.assert_one_call(model)


class Refused(Case):
    def test_refusal(self):
        for call, options in ((self.chat.create, PERSON_FORMAT), (self.chat.parse, Person)):
            self.sent.clear()
            model = fresh("refusal")
            got = call(model=model, messages=ASK, response_format=options)
            self.assertEqual(got.choices[0].message.refusal, SCRIPT["refusal"]["text"])
            self.assertIsNone(got.choices[0].message.content)
            self.assertIsNone(getattr(got.choices[0].message, "parsed", None))
            self.assertEqual(got.choices[0].finish_reason, "stop")
            self.assert_one_call(model)

    def test_outcome(self):
        for behaviour in ("refusal", "filtered"):
            raw = self.chat.with_raw_response.create(model=fresh(behaviour), messages=ASK, response_format=PERSON_FORMAT)
            self.assertEqual(raw.headers["x-portcullis-outcome"], "refused")

    def test_filtered(self):
        model = fresh("filtered")
        got = self.chat.create(model=model, messages=ASK, response_format=PERSON_FORMAT)
        self.assertFalse(got.choices[0].message.content, "what the filter cut short goes no further")
        self.assert_one_call(model)
        with self.assertRaises(openai.ContentFilterFinishReasonError):
            self.chat.parse(model=fresh("filtered"), messages=ASK, response_format=Person)

    def test_stream(self):
        model = fresh("refusal")
        with self.chat.stream(model=model, messages=ASK, response_format=Person) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_completion()
        self.assertIn("refusal.done", kinds)
        self.assertEqual(final.choices[0].message.refusal, SCRIPT["refusal"]["text"])
        self.assertIsNone(final.choices[0].message.parsed)
        self.assert_one_call(model)


class Rejected(Case):
    def test_create_and_parse(self):
        for behaviour, code in REJECTED.items():
            for call, options in ((self.chat.create, PERSON_FORMAT), (self.chat.parse, Person)):
                with self.subTest(behaviour):
                    self.sent.clear()
                    model = fresh(behaviour)
                    ask = lambda: call(model=model, messages=ASK, response_format=options)
                    error = self.raises(openai.UnprocessableEntityError, ask)
                    self.assert_rejected(error, code)
                    self.assert_one_call(model)

    def test_stream(self):
        for behaviour, code in REJECTED.items():
            with self.subTest(behaviour):
                self.sent.clear()
                model = fresh(behaviour)
                ask = lambda: list(self.chat.create(model=model, messages=ASK, response_format=PERSON_FORMAT, stream=True))
                error = self.raises(openai.UnprocessableEntityError, ask)
                self.assert_rejected(error, code)
                self.assert_one_call(model)

    def test_stream_helper(self):
        model = fresh("wrong_type")

        def ask():
            with self.chat.stream(model=model, messages=ASK, response_format=Person) as stream:
                return [event.type for event in stream]

        self.assert_rejected(self.raises(openai.UnprocessableEntityError, ask), "schema_violation")
        self.assert_one_call(model)

    def test_the_violation_names_its_place(self):
        ask = lambda: self.chat.parse(model=fresh("wrong_type"), messages=ASK, response_format=Person)
        error = self.raises(openai.UnprocessableEntityError, ask)
        [violation] = error.body["portcullis"]["violations"]
        self.assertIn("age", violation["path"])
        self.assertIn("age", error.message)

    def test_prose_is_not_quoted(self):
        ask = lambda: self.chat.parse(model=fresh("prose"), messages=ASK, response_format=Person)
        error = self.raises(openai.UnprocessableEntityError, ask)
        self.assertNotIn("thirty-six years", json.dumps(error.body))

    def test_one_bad_choice_of_two(self):
        for stream in (False, True):
            self.sent.clear()
            model = fresh("n_one_bad")
            ask = lambda: list(self.chat.create(model=model, messages=ASK, response_format=PERSON_FORMAT, n=2, stream=stream))
            self.assert_rejected(self.raises(openai.UnprocessableEntityError, ask), "schema_violation")
            self.assert_one_call(model)

    def test_a_bad_schema_costs_no_call(self):
        model = fresh("clean")
        broken = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "no such type"}}}
        ask = lambda: self.chat.create(model=model, messages=ASK, response_format=broken)
        error = self.raises(openai.BadRequestError, ask)
        self.assertEqual(error.code, "schema_invalid")
        self.assertEqual(len(self.sent), 1)
        self.assertEqual(calls(model)["calls"], 0)


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid")
    sku: str
    quantity: int
    size: str
    additions: list[str]
    removals: list[str]
    special_instructions: str | None


class Constraints(BaseModel):
    model_config = ConfigDict(extra="forbid")
    allergens: list[str]
    dietary: list[str]


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")
    status: str
    items: list[Item]
    constraints: Constraints
    clarification_question: str | None
    reasons: list[str]


class Orders(Case):
    """The policy `orders`, and one that asks and rejects by default, in front of the demo backend."""

    LATTE = "A large iced latte with vanilla, please."
    PEANUT = "I'm allergic to peanuts. Prawn noodles, please."
    PINEAPPLE = "A margherita with pineapple, please."
    SESAME = "I'm not allergic to eggs, but to sesame. A tomato soup, please."

    def order(self, name: str, said: str, policy: str = "orders", **more):
        messages = [{"role": "user", "content": said}]
        return self.chat.create(model=f"demo/{name}", messages=messages, extra_headers={"x-portcullis-policy": policy}, **more)

    def parsed(self, name: str, said: str, policy: str = "orders"):
        body = {"portcullis": {"policy": [policy]}}
        return self.chat.parse(model=f"demo/{name}", messages=[{"role": "user", "content": said}], response_format=Order, extra_body=body)

    def streamed(self, name: str, said: str, policy: str = "orders"):
        chunks = list(self.order(name, said, policy, stream=True))
        deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices][-1], "stop")
        text = "".join(delta.content or "" for delta in deltas)
        return text, "".join(getattr(delta, "refusal", None) or "" for delta in deltas)

    def test_accepted(self):
        whole = self.order("order_right", self.LATTE).choices[0].message.content
        self.assertEqual(json.loads(whole)["status"], "accepted")
        self.assertEqual(self.streamed("order_right", self.LATTE), (whole, ""))
        order = self.parsed("order_right", self.LATTE).choices[0].message.parsed
        self.assertEqual((order.items[0].sku, order.items[0].additions), ("ICED_LATTE", ["vanilla"]))

    def test_rejected_as_an_object(self):
        order = self.parsed("order_allergen", self.PEANUT).choices[0].message.parsed
        self.assertEqual((order.status, order.items, order.constraints.allergens), ("rejected_safety", [], ["peanut"]))
        text, _ = self.streamed("order_allergen", self.PEANUT)
        self.assertEqual(json.loads(text)["status"], "rejected_safety")
        self.assertNotIn("PRAWN_NOODLES", text)

    def test_clarified_as_an_object(self):
        for name, said, word in (("order_invented", self.PINEAPPLE, "pineapple"), ("order_forgotten", self.SESAME, "sesame")):
            order = self.parsed(name, said).choices[0].message.parsed
            self.assertEqual((order.status, order.items), ("needs_clarification", []))
            self.assertIn(word, order.clarification_question)
            text, _ = self.streamed(name, said)
            self.assertEqual(json.loads(text)["clarification_question"], order.clarification_question)

    def test_clarified_as_a_refusal(self):
        question = "We have no pineapple. What would you like instead?"
        message = self.parsed("order_invented", self.PINEAPPLE, "asking").choices[0].message
        self.assertEqual((message.parsed, message.content, message.refusal), (None, None, question))
        self.assertEqual(message.portcullis["outcome"], "clarified")
        self.assertEqual(self.streamed("order_invented", self.PINEAPPLE, "asking"), ("", question))

    def test_rejected_as_an_error(self):
        for stream in (False, True):
            ask = lambda: list(self.order("order_allergen", self.PEANUT, "asking", stream=stream))
            error = self.raises(openai.UnprocessableEntityError, ask)
            self.assert_rejected(error, "contract_rejected")
            self.assertEqual([v["gate"] for v in error.body["portcullis"]["violations"]], ["no-peanuts"])


class Failed(Case):
    def ask(self, behaviour: str, use: str):
        model = f"{behaviour}--{use}"
        if use == "create":
            return self.chat.create(model=model, messages=ASK, response_format=PERSON_FORMAT)
        if use == "parse":
            return self.chat.parse(model=model, messages=ASK, response_format=Person)
        return list(self.chat.create(model=model, messages=ASK, response_format=PERSON_FORMAT, stream=True))

    def assert_failed(self, behaviour: str, kind, statuses: list[int], codes: list[str] | None, uses=("create", "parse", "stream")):
        for use in uses:
            with self.subTest(f"{behaviour} {use}"):
                self.sent.clear()
                model = f"{behaviour}--{use}"
                before = calls(model)["calls"]
                error = self.raises(kind, lambda: self.ask(behaviour, use))
                self.assertIn(error.status_code, statuses)
                if codes:
                    self.assertIn(error.code, codes)
                self.assertTrue(error.type)
                self.assertEqual(error.response.headers["x-portcullis-outcome"], "failed")
                self.assertNotIn(os.environ["UPSTREAM_KEY"], json.dumps(error.body))
                self.assert_one_call(model, before)

    def test_server_errors(self):
        self.assert_failed("http_500", openai.InternalServerError, [500], None)
        self.assert_failed("http_503", openai.InternalServerError, [503], None)

    def test_bad_request(self):
        self.assert_failed("http_400", openai.BadRequestError, [400], ["bad_messages"])

    def test_the_operators_credentials(self):
        self.assert_failed("http_401", openai.InternalServerError, [502], ["upstream_auth"])

    def test_rate_limit(self):
        self.client = self.client.with_options(max_retries=0)
        self.chat = self.client.chat.completions
        self.assert_failed("http_429", openai.RateLimitError, [429], None)

    def test_error_inside_a_200(self):
        self.assert_failed("error_in_200", openai.InternalServerError, [500, 502], None, uses=("create", "parse"))

    def test_no_json_at_all(self):
        self.assert_failed("html_in_200", openai.InternalServerError, [502], ["upstream_protocol"], uses=("create", "parse", "stream"))

    def test_empty(self):
        for behaviour in ("empty", "blank"):
            self.assert_failed(behaviour, openai.InternalServerError, [502], ["output_empty"])

    def test_a_stream_that_is_cut(self):
        self.assert_failed("cut", openai.InternalServerError, [502], ["upstream_protocol"], uses=("stream",))

    def test_an_error_in_mid_stream(self):
        self.assert_failed("error_in_stream", openai.InternalServerError, [500, 502], None, uses=("stream",))

    def test_the_callers_deadline(self):
        client = self.client.with_options(timeout=2, max_retries=0)
        model = "endless--other"
        try:
            client.chat.completions.create(model=model, messages=ASK, response_format=PERSON_FORMAT)
            self.fail("no error")
        except openai.APITimeoutError:
            pass
        except openai.InternalServerError as error:
            self.assertEqual((error.status_code, error.code), (504, "upstream_timeout"))
        self.assert_one_call(model)
        self.assert_cancelled(model)

    def test_the_caller_goes_away(self):
        for use, options in (("stream", {}), ("create", {"response_format": PERSON_FORMAT})):
            model = f"endless--{use}"
            before = calls(model)["cancelled"]
            client = self.client.with_options(timeout=1 if use == "create" else 30, max_retries=0)
            if use == "stream":
                stream = client.chat.completions.create(model=model, messages=ASK, stream=True, **options)
                next(iter(stream))
                stream.close()
            else:
                with self.assertRaises(openai.APITimeoutError):
                    # Held, with nothing to send for longer than the caller waits.
                    list(client.chat.completions.create(model=model, messages=ASK, stream=True, **options))
            self.assert_cancelled(model, before)

    def assert_cancelled(self, model: str, before: int = 0):
        until = time.monotonic() + 5
        while time.monotonic() < until:
            if calls(model)["cancelled"] == before + 1:
                return
            time.sleep(0.05)
        self.fail(f"the upstream call of `{model}` goes on: {calls(model)}")


class Streamed(Case):
    def test_helper(self):
        for behaviour in ACCEPTED:
            with self.subTest(behaviour):
                self.sent.clear()
                model = fresh(behaviour)
                with self.chat.stream(model=model, messages=ASK, response_format=Person) as stream:
                    text = "".join(event.delta for event in stream if event.type == "content.delta")
                    final = stream.get_final_completion()
                self.assertEqual(text, SCRIPT[behaviour]["slice"])
                self.assertEqual(final.choices[0].message.content, SCRIPT[behaviour]["slice"])
                self.assertEqual(final.choices[0].message.parsed.age, 36)
                self.assert_one_call(model)

    def test_raw(self):
        model = fresh("preamble")
        raw = self.chat.with_raw_response.create(
            model=model, messages=ASK, response_format=PERSON_FORMAT, stream=True, stream_options={"include_usage": True}
        )
        self.assertEqual(raw.headers["x-portcullis-outcome"], "accepted")
        self.assertEqual(raw.headers["cache-control"], "no-cache")
        self.assertTrue(raw.headers["content-type"].startswith("text/event-stream"))
        chunks = list(raw.parse())
        self.assertEqual({chunk.id for chunk in chunks}, {"chatcmpl-scripted"})
        self.assertEqual({chunk.model for chunk in chunks}, {model})
        choices = [choice for chunk in chunks for choice in chunk.choices]
        self.assertEqual("".join(choice.delta.content or "" for choice in choices), SCRIPT["preamble"]["slice"])
        self.assertEqual([choice.finish_reason for choice in choices if choice.finish_reason], ["stop"])
        self.assertEqual([chunk.usage.total_tokens for chunk in chunks if chunk.usage], [33])
        self.assert_one_call(model)

    def test_usage_only_if_asked_for(self):
        chunks = list(self.chat.create(model=fresh("clean"), messages=ASK, response_format=PERSON_FORMAT, stream=True))
        self.assertEqual([chunk for chunk in chunks if chunk.usage], [])

    def test_two_choices(self):
        chunks = list(self.chat.create(model=fresh("fenced"), messages=ASK, response_format=PERSON_FORMAT, stream=True, n=2))
        for index in (0, 1):
            mine = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
            self.assertEqual("".join(choice.delta.content or "" for choice in mine), SCRIPT["fenced"]["slice"])
            self.assertEqual([choice.finish_reason for choice in mine if choice.finish_reason], ["stop"])


class Tools(Case):
    def assert_called(self, message, arguments: list[str]):
        self.assertEqual([call.function.arguments for call in message.tool_calls], arguments)
        self.assertEqual({call.function.name for call in message.tool_calls}, {"Weather"})
        self.assertFalse(message.content)

    def ways(self):
        """Each way to bind a tool's parameters: by `strict`, by naming it, by requiring the only one."""
        yield {"tools": [tool(strict=True)]}
        yield {"tools": [tool()], "tool_choice": FORCED}
        yield {"tools": [tool()], "tool_choice": "required"}

    def test_accepted(self):
        for behaviour in ("tool", "tools_two"):
            for way in self.ways():
                with self.subTest(f"{behaviour} {way.get('tool_choice')}"):
                    self.sent.clear()
                    model = fresh(behaviour)
                    got = self.chat.create(model=model, messages=ASK, **way)
                    self.assert_called(got.choices[0].message, SCRIPT[behaviour]["arguments"])
                    self.assertEqual(got.choices[0].finish_reason, "tool_calls")
                    self.assert_one_call(model)

    def test_parse(self):
        model = fresh("tools_two")
        got = self.chat.parse(model=model, messages=ASK, tools=[openai.pydantic_function_tool(Weather)])
        made = got.choices[0].message.tool_calls
        self.assertEqual([call.function.parsed_arguments for call in made], [Weather(city="Oslo", days=3), Weather(city="Bergen", days=10)])
        self.assertEqual([call.function.arguments for call in made], SCRIPT["tools_two"]["arguments"])
        self.assert_one_call(model)

    def test_with_a_response_format(self):
        """A turn that calls a tool has no content to judge."""
        model = fresh("tool")
        got = self.chat.parse(model=model, messages=ASK, tools=[openai.pydantic_function_tool(Weather)], response_format=Person)
        self.assert_called(got.choices[0].message, SCRIPT["tool"]["arguments"])
        self.assertIsNone(got.choices[0].message.parsed)
        model = fresh("fenced")
        got = self.chat.parse(model=model, messages=ASK, tools=[openai.pydantic_function_tool(Weather)], response_format=Person)
        self.assertEqual(got.choices[0].message.content, SCRIPT["fenced"]["slice"])

    def test_rejected(self):
        for behaviour in CALLS_REJECTED:
            for way in self.ways():
                for stream in (False, True):
                    with self.subTest(f"{behaviour} {way.get('tool_choice')} {stream}"):
                        self.sent.clear()
                        model = fresh(behaviour)
                        ask = lambda: list(self.chat.create(model=model, messages=ASK, stream=stream, **way))
                        self.assert_rejected(self.raises(openai.UnprocessableEntityError, ask), "tool_violation")
                        self.assert_one_call(model)

    def test_forced_and_not_called(self):
        """The gateway may ask once more; the SDK may not, and no answer without the call gets through."""
        model = fresh("tool_text")
        ask = lambda: self.chat.create(model=model, messages=ASK, tools=[tool()], tool_choice=FORCED)
        error = self.raises(openai.UnprocessableEntityError, ask)
        self.assertIn(error.code, ["tool_violation", "output_not_json"])
        self.assertEqual(len(self.sent), 1)
        self.assertIn(calls(model)["calls"], [1, 2])

    def test_stream(self):
        for way in self.ways():
            self.sent.clear()
            model = fresh("tools_two")
            chunks = list(self.chat.create(model=model, messages=ASK, stream=True, **way))
            made: dict[int, list[str]] = {}
            names = []
            for choice in (choice for chunk in chunks for choice in chunk.choices):
                for call in choice.delta.tool_calls or []:
                    made.setdefault(call.index, []).append(call.function.arguments or "")
                    names += [call.function.name] if call.function.name else []
            self.assertEqual(["".join(made[index]) for index in sorted(made)], SCRIPT["tools_two"]["arguments"])
            self.assertEqual(names, ["Weather", "Weather"])
            self.assert_one_call(model)

    def test_stream_helper(self):
        model = fresh("tool")
        with self.chat.stream(model=model, messages=ASK, tools=[openai.pydantic_function_tool(Weather)]) as stream:
            stream.until_done()
            final = stream.get_final_completion()
        [call] = final.choices[0].message.tool_calls
        self.assertEqual(call.function.parsed_arguments, Weather(city="Oslo", days=3))
        self.assertEqual(final.choices[0].finish_reason, "tool_calls")


class Unchecked(Case):
    def test_create(self):
        raw = self.chat.with_raw_response.create(model=fresh("prose"), messages=ASK)
        self.assertEqual(raw.headers["x-portcullis-outcome"], "unchecked")
        self.assertEqual(raw.parse().choices[0].message.content, SCRIPT["prose"]["text"])

    def test_stream(self):
        chunks = list(self.chat.create(model=fresh("text"), messages=ASK, stream=True))
        texts = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
        self.assertEqual("".join(texts), SCRIPT["text"]["text"])
        self.assertGreater(len(texts), 3, "streamed as it comes")


class Open(Case):
    """Paths that no contract guards."""

    def test_embeddings(self):
        got = self.client.embeddings.create(model="embedder", input="Ada")
        self.assertEqual((got.data[0].embedding, got.model), ([0.5, -1.0], "embedder"))

    def test_a_file_comes_back_as_it_went(self):
        held = os.urandom(5 << 20)
        file = self.client.files.create(file=("f.bin", held), purpose="batch")
        self.assertEqual(file.bytes, len(held))
        self.assertEqual(self.client.files.content(file.id).read(), held)
        self.assertTrue(self.client.files.delete(file.id).deleted)

    def test_what_is_not_there_is_the_sdks_own_error(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.files.retrieve("file-none")
        self.assertEqual(caught.exception.body["message"], "no such path")

    def test_what_is_not_judged_is_not_served(self):
        with self.assertRaises(openai.APIStatusError) as caught:
            self.client.responses.create(model="m", input="Ada")
        self.assertEqual((caught.exception.status_code, caught.exception.code), (501, "not_supported"))


class Async(Case):
    def test_many_at_once(self):
        async def run():
            async with openai.AsyncOpenAI(base_url=GATEWAY, api_key=os.environ["CLIENT_KEY"], timeout=30) as client:

                async def accepted(behaviour):
                    got = await client.chat.completions.parse(model=fresh(behaviour), messages=ASK, response_format=Person)
                    return got.choices[0].message.content == SCRIPT[behaviour]["slice"]

                async def streamed(behaviour):
                    async with client.chat.completions.stream(model=fresh(behaviour), messages=ASK, response_format=Person) as stream:
                        final = await stream.get_final_completion()
                    return final.choices[0].message.content == SCRIPT[behaviour]["slice"]

                async def rejected(behaviour):
                    try:
                        await client.chat.completions.parse(model=fresh(behaviour), messages=ASK, response_format=Person)
                    except openai.UnprocessableEntityError as error:
                        return error.code == REJECTED[behaviour]

                jobs = [job(b) for _ in range(4) for job in (accepted, streamed) for b in ACCEPTED]
                jobs += [rejected(behaviour) for _ in range(4) for behaviour in REJECTED]
                return await asyncio.gather(*jobs)

        got = asyncio.run(run())
        self.assertEqual(len(got), 4 * (2 * len(ACCEPTED) + len(REJECTED)))
        self.assertTrue(all(got), got)


def main() -> int:
    print(f"openai {openai.__version__} on Python {sys.version.split()[0]}", flush=True)
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    # A test fails once, however many of its subtests do; one that was skipped has not passed.
    failed = {getattr(case, "test_case", case).id() for case, _ in result.failures + result.errors}
    failed |= {case.id() for case, _ in result.skipped}
    print(f"{result.testsRun - len(failed)} passed, {len(failed)} failed")
    return 0 if result.testsRun and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
