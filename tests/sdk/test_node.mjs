// What a stock `openai` SDK for Node gets through the gateway. Run by `stack.py`.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const GATEWAY = `${process.env.GATEWAY_URL}/v1`;
const UPSTREAM = process.env.UPSTREAM_URL;
const ASK = [
  { role: "system", content: "You fill in forms." },
  { role: "user", content: "Who is Ada, and how old?" },
];
const Person = z.object({
  name: z.string(),
  age: z.number().int(),
  ratio: z.number(),
  serial: z.number(),
  tags: z.array(z.string()),
});
const Weather = z.object({ city: z.string(), days: z.number().int() });
const PERSON = zodResponseFormat(Person, "person");
const WEATHER = zodFunction({ name: "Weather", description: "The forecast for a city.", parameters: Weather });
const LOOSE = { type: "function", function: { name: "Weather", parameters: WEATHER.function.parameters } };
const FORCED = { type: "function", function: { name: "Weather" } };
// Each way to bind a tool's parameters: by `strict`, by naming it, by requiring the only one.
const WAYS = [{ tools: [WEATHER] }, { tools: [LOOSE], tool_choice: FORCED }, { tools: [LOOSE], tool_choice: "required" }];

const ACCEPTED = ["clean", "fenced", "preamble", "think", "slow"];
const REJECTED = {
  prose: "output_not_json",
  broken: "output_not_json",
  duplicate: "output_duplicate_key",
  ambiguous: "output_ambiguous",
  wrong_type: "schema_violation",
  wrong_fenced: "schema_violation",
  length: "output_truncated",
  length_whole: "output_truncated",
};
const CALLS_REJECTED = ["tool_bad", "tool_broken", "tool_fenced", "tool_unknown", "tools_one_bad"];

const get = async (path) => (await fetch(UPSTREAM + path)).json();
const SCRIPT = await get("/script");
const fresh = (behaviour) => `${behaviour}--${randomUUID().slice(0, 12)}`;
const calls = async (model) => (await get("/calls"))[model] ?? { calls: 0, done: 0, cancelled: 0 };

/** A client as a user makes it, retries and all, that counts what it sends. */
function newClient(options = {}) {
  const counter = { sent: 0 };
  const counting = (...args) => {
    counter.sent += 1;
    return fetch(...args);
  };
  const client = new OpenAI({ baseURL: GATEWAY, apiKey: process.env.CLIENT_KEY, fetch: counting, timeout: 30_000, ...options });
  return { client, chat: client.chat.completions, counter };
}

async function raised(kind, call) {
  let got;
  try {
    got = await call();
  } catch (error) {
    assert.equal(error.constructor, kind, String(error));
    return error;
  }
  return assert.fail(`no error, but ${JSON.stringify(got)}`);
}

/** Neither the gateway nor the SDK tried again. */
async function assertOneCall(counter, model, before = 0) {
  assert.equal(counter.sent, 1, "requests that the SDK made");
  assert.equal((await calls(model)).calls - before, 1, "calls that the upstream saw");
}

function assertRejected(error, code) {
  assert.equal(error.status, 422);
  assert.equal(error.code, code);
  assert.equal(error.type, "contract_violation");
  assert.equal(error.headers.get("x-should-retry"), "false");
  assert.equal(error.headers.get("x-portcullis-outcome"), "rejected");
  assert.ok(error.requestID);
  assert.equal(error.error.portcullis.outcome, "rejected");
  if (["schema_violation", "tool_violation"].includes(code)) assert.ok(error.error.portcullis.violations.length >= 1);
}

const collect = async (stream) => {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
};

async function assertCancelled(model, before = 0) {
  for (let i = 0; i < 100; i += 1) {
    if ((await calls(model)).cancelled === before + 1) return;
    await sleep(50);
  }
  assert.fail(`the upstream call of ${model} goes on: ${JSON.stringify(await calls(model))}`);
}

for (const behaviour of ACCEPTED) {
  test(`accepted, create: ${behaviour}`, async () => {
    const { chat, counter } = newClient();
    const model = fresh(behaviour);
    const got = await chat.create({ model, messages: ASK, response_format: PERSON });
    assert.equal(got.choices[0].message.content, SCRIPT[behaviour].slice);
    assert.equal(got.choices[0].finish_reason, "stop");
    assert.equal(got.id, "chatcmpl-scripted");
    assert.deepEqual(got.x_scripted, { kept: [1.0, "é"] });
    await assertOneCall(counter, model);
  });

  test(`accepted, parse: ${behaviour}`, async () => {
    const { chat, counter } = newClient();
    const model = fresh(behaviour);
    const got = await chat.parse({ model, messages: ASK, response_format: PERSON });
    assert.equal(got.choices[0].message.content, SCRIPT[behaviour].slice);
    assert.deepEqual(got.choices[0].message.parsed, JSON.parse(SCRIPT.clean.slice));
    await assertOneCall(counter, model);
  });

  test(`accepted, stream: ${behaviour}`, async () => {
    const { chat, counter } = newClient();
    const model = fresh(behaviour);
    let text = "";
    const stream = chat.stream({ model, messages: ASK, response_format: PERSON }).on("content", (delta) => (text += delta));
    const final = await stream.finalChatCompletion();
    assert.equal(text, SCRIPT[behaviour].slice);
    assert.equal(final.choices[0].message.content, SCRIPT[behaviour].slice);
    assert.deepEqual(final.choices[0].message.parsed, JSON.parse(SCRIPT.clean.slice));
    await assertOneCall(counter, model);
  });
}

test("accepted: headers", async () => {
  const { chat } = newClient();
  const { response } = await chat.create({ model: fresh("fenced"), messages: ASK, response_format: PERSON }).withResponse();
  assert.equal(response.headers.get("x-portcullis-outcome"), "accepted");
  assert.equal(response.headers.get("x-portcullis-backend"), "up");
  assert.equal(response.headers.get("x-portcullis-native"), "json_schema");
  assert.equal(response.headers.get("x-portcullis-attempts"), "1");
  assert.ok(Number(response.headers.get("x-portcullis-overhead-us")) >= 0);
  assert.ok(response.headers.get("x-portcullis-request-id"));
});

test("accepted: two choices", async () => {
  const { chat, counter } = newClient();
  const model = fresh("fenced");
  const got = await chat.parse({ model, messages: ASK, response_format: PERSON, n: 2 });
  assert.deepEqual(got.choices.map((choice) => choice.message.content), [SCRIPT.fenced.slice, SCRIPT.fenced.slice]);
  assert.deepEqual(got.choices.map((choice) => choice.message.parsed.age), [36, 36]);
  await assertOneCall(counter, model);
});

test("accepted: a raw stream, with usage", async () => {
  const { chat } = newClient();
  const chunks = await collect(
    await chat.create({ model: fresh("preamble"), messages: ASK, response_format: PERSON, stream: true, stream_options: { include_usage: true } }),
  );
  const choices = chunks.flatMap((chunk) => chunk.choices);
  assert.equal(choices.map((choice) => choice.delta.content ?? "").join(""), SCRIPT.preamble.slice);
  assert.deepEqual(choices.map((choice) => choice.finish_reason).filter(Boolean), ["stop"]);
  assert.deepEqual(chunks.map((chunk) => chunk.usage?.total_tokens).filter(Boolean), [33]);
});

test("refused: parse and create", async () => {
  for (const method of ["create", "parse"]) {
    const { chat, counter } = newClient();
    const model = fresh("refusal");
    const got = await chat[method]({ model, messages: ASK, response_format: PERSON });
    assert.equal(got.choices[0].message.refusal, SCRIPT.refusal.text);
    assert.equal(got.choices[0].message.content, null);
    assert.equal(got.choices[0].message.parsed ?? null, null);
    await assertOneCall(counter, model);
  }
});

test("refused: stream", async () => {
  const { chat, counter } = newClient();
  const model = fresh("refusal");
  const final = await chat.stream({ model, messages: ASK, response_format: PERSON }).finalChatCompletion();
  assert.equal(final.choices[0].message.refusal, SCRIPT.refusal.text);
  assert.equal(final.choices[0].message.parsed ?? null, null);
  await assertOneCall(counter, model);
});

test("refused: filtered", async () => {
  const { chat } = newClient();
  const { data, response } = await chat.create({ model: fresh("filtered"), messages: ASK, response_format: PERSON }).withResponse();
  assert.ok(!data.choices[0].message.content);
  assert.equal(response.headers.get("x-portcullis-outcome"), "refused");
  const error = await chat.parse({ model: fresh("filtered"), messages: ASK, response_format: PERSON }).catch((caught) => caught);
  assert.equal(error.constructor, OpenAI.ContentFilterFinishReasonError ?? error.constructor);
  assert.match(String(error), /content filter/);
});

for (const [behaviour, code] of Object.entries(REJECTED)) {
  for (const method of ["create", "parse"]) {
    test(`rejected, ${method}: ${behaviour}`, async () => {
      const { chat, counter } = newClient();
      const model = fresh(behaviour);
      const error = await raised(OpenAI.UnprocessableEntityError, () => chat[method]({ model, messages: ASK, response_format: PERSON }));
      assertRejected(error, code);
      await assertOneCall(counter, model);
    });
  }

  test(`rejected, stream: ${behaviour}`, async () => {
    const { chat, counter } = newClient();
    const model = fresh(behaviour);
    const error = await raised(OpenAI.UnprocessableEntityError, async () =>
      collect(await chat.create({ model, messages: ASK, response_format: PERSON, stream: true })),
    );
    assertRejected(error, code);
    await assertOneCall(counter, model);
  });
}

test("rejected: the stream helper", async () => {
  const { chat, counter } = newClient();
  const model = fresh("wrong_type");
  const error = await raised(OpenAI.UnprocessableEntityError, () =>
    chat.stream({ model, messages: ASK, response_format: PERSON }).finalChatCompletion(),
  );
  assertRejected(error, "schema_violation");
  await assertOneCall(counter, model);
});

test("rejected: one bad choice of two", async () => {
  const { chat, counter } = newClient();
  const model = fresh("n_one_bad");
  const error = await raised(OpenAI.UnprocessableEntityError, () => chat.create({ model, messages: ASK, response_format: PERSON, n: 2 }));
  assertRejected(error, "schema_violation");
  await assertOneCall(counter, model);
});

const FAILED = [
  // behaviour, kind, statuses, code, uses
  ["http_500", OpenAI.InternalServerError, [500], null, ["create", "parse", "stream"]],
  ["http_503", OpenAI.InternalServerError, [503], null, ["create", "parse", "stream"]],
  ["http_400", OpenAI.BadRequestError, [400], "bad_messages", ["create", "parse", "stream"]],
  ["http_401", OpenAI.InternalServerError, [502], "upstream_auth", ["create", "parse", "stream"]],
  ["error_in_200", OpenAI.InternalServerError, [500, 502], null, ["create", "parse"]],
  ["html_in_200", OpenAI.InternalServerError, [502], "upstream_protocol", ["create", "parse", "stream"]],
  ["empty", OpenAI.InternalServerError, [502], "output_empty", ["create", "parse", "stream"]],
  ["blank", OpenAI.InternalServerError, [502], "output_empty", ["create", "parse", "stream"]],
  ["cut", OpenAI.InternalServerError, [502], "upstream_protocol", ["stream"]],
  ["error_in_stream", OpenAI.InternalServerError, [500, 502], null, ["stream"]],
];
for (const [behaviour, kind, statuses, code, uses] of FAILED) {
  for (const use of uses) {
    test(`failed, ${use}: ${behaviour}`, async () => {
      const { chat, counter } = newClient();
      const model = `${behaviour}--${use}`;
      const before = (await calls(model)).calls;
      const request = { model, messages: ASK, response_format: PERSON };
      const error = await raised(kind, async () =>
        use === "stream" ? collect(await chat.create({ ...request, stream: true })) : chat[use](request),
      );
      assert.ok(statuses.includes(error.status), String(error.status));
      if (code) assert.equal(error.code, code);
      assert.equal(error.headers.get("x-portcullis-outcome"), "failed");
      await assertOneCall(counter, model, before);
    });
  }
}

const order = (name, said, policy, more = {}) => [
  { model: `demo/${name}`, messages: [{ role: "user", content: said }], ...more },
  { headers: { "x-portcullis-policy": policy } },
];
const LATTE = "A large iced latte with vanilla, please.";
const PEANUT = "I'm allergic to peanuts. Prawn noodles, please.";
const PINEAPPLE = "A margherita with pineapple, please.";

async function streamed(name, said, policy) {
  const { chat } = newClient();
  const deltas = (await collect(await chat.create(...order(name, said, policy, { stream: true })))).flatMap((c) => c.choices);
  const join = (key) => deltas.map((choice) => choice.delta[key] ?? "").join("");
  return { content: join("content"), refusal: join("refusal") };
}

test("orders: accepted, whole and streamed", async () => {
  const { chat } = newClient();
  const got = (await chat.create(...order("order_right", LATTE, "orders"))).choices[0].message.content;
  assert.equal(JSON.parse(got).status, "accepted");
  assert.deepEqual(await streamed("order_right", LATTE, "orders"), { content: got, refusal: "" });
});

test("orders: rejected and clarified as objects", async () => {
  const { chat } = newClient();
  const got = JSON.parse((await chat.create(...order("order_allergen", PEANUT, "orders"))).choices[0].message.content);
  assert.deepEqual([got.status, got.items, got.constraints.allergens], ["rejected_safety", [], ["peanut"]]);
  const asked = JSON.parse((await streamed("order_invented", PINEAPPLE, "orders")).content);
  assert.equal(asked.status, "needs_clarification");
  assert.match(asked.clarification_question, /pineapple/);
});

test("orders: clarified as a refusal, rejected as an error", async () => {
  const { chat } = newClient();
  const question = "We have no pineapple. What would you like instead?";
  const { message } = (await chat.create(...order("order_invented", PINEAPPLE, "asking"))).choices[0];
  assert.deepEqual([message.content, message.refusal], [null, question]);
  assert.deepEqual(await streamed("order_invented", PINEAPPLE, "asking"), { content: "", refusal: question });
  const error = await raised(OpenAI.UnprocessableEntityError, () => chat.create(...order("order_allergen", PEANUT, "asking")));
  assertRejected(error, "contract_rejected");
});

test("failed: the upstream's rate limit", async () => {
  const { chat, counter } = newClient({ maxRetries: 0 });
  const model = "http_429--create";
  const before = (await calls(model)).calls;
  const error = await raised(OpenAI.RateLimitError, () => chat.create({ model, messages: ASK, response_format: PERSON }));
  assert.equal(error.status, 429);
  await assertOneCall(counter, model, before);
});

test("failed: the caller goes away", async () => {
  const { chat } = newClient({ maxRetries: 0 });
  const model = "endless--stream";
  const before = (await calls(model)).cancelled;
  const stream = await chat.create({ model, messages: ASK, stream: true });
  for await (const chunk of stream) {
    assert.equal(chunk.choices[0].delta.content, "tick ");
    break;
  }
  await assertCancelled(model, before);
});

for (const [number, way] of WAYS.entries()) {
  for (const behaviour of ["tool", "tools_two"]) {
    test(`tools, accepted, way ${number}: ${behaviour}`, async () => {
      const { chat, counter } = newClient();
      const model = fresh(behaviour);
      const got = await chat.create({ model, messages: ASK, ...way });
      assert.deepEqual(got.choices[0].message.tool_calls.map((call) => call.function.arguments), SCRIPT[behaviour].arguments);
      assert.equal(got.choices[0].finish_reason, "tool_calls");
      await assertOneCall(counter, model);
    });
  }

  for (const behaviour of CALLS_REJECTED) {
    for (const stream of [false, true]) {
      test(`tools, rejected, way ${number}: ${behaviour}, stream ${stream}`, async () => {
        const { chat, counter } = newClient();
        const model = fresh(behaviour);
        const error = await raised(OpenAI.UnprocessableEntityError, async () => {
          const got = await chat.create({ model, messages: ASK, stream, ...way });
          return stream ? collect(got) : got;
        });
        assertRejected(error, "tool_violation");
        await assertOneCall(counter, model);
      });
    }
  }

  test(`tools, stream, way ${number}`, async () => {
    const { chat, counter } = newClient();
    const model = fresh("tools_two");
    const chunks = await collect(await chat.create({ model, messages: ASK, stream: true, ...way }));
    const made = {};
    for (const call of chunks.flatMap((chunk) => chunk.choices).flatMap((choice) => choice.delta.tool_calls ?? [])) {
      made[call.index] = (made[call.index] ?? "") + (call.function.arguments ?? "");
    }
    assert.deepEqual(Object.values(made), SCRIPT.tools_two.arguments);
    await assertOneCall(counter, model);
  });
}

test("tools: parse with zod", async () => {
  const { chat } = newClient();
  const got = await chat.parse({ model: fresh("tools_two"), messages: ASK, tools: [WEATHER] });
  const parsed = got.choices[0].message.tool_calls.map((call) => call.function.parsed_arguments);
  assert.deepEqual(parsed, [{ city: "Oslo", days: 3 }, { city: "Bergen", days: 10 }]);
});

test("tools: the stream helper", async () => {
  const { chat } = newClient();
  const final = await chat.stream({ model: fresh("tool"), messages: ASK, tools: [WEATHER] }).finalChatCompletion();
  assert.deepEqual(final.choices[0].message.tool_calls[0].function.parsed_arguments, { city: "Oslo", days: 3 });
});

test("unchecked: text passes, and streams as it comes", async () => {
  const { chat } = newClient();
  const { data, response } = await chat.create({ model: fresh("prose"), messages: ASK }).withResponse();
  assert.equal(data.choices[0].message.content, SCRIPT.prose.text);
  assert.equal(response.headers.get("x-portcullis-outcome"), "unchecked");
  const chunks = await collect(await chat.create({ model: fresh("text"), messages: ASK, stream: true }));
  const texts = chunks.flatMap((chunk) => chunk.choices).map((choice) => choice.delta.content).filter(Boolean);
  assert.equal(texts.join(""), SCRIPT.text.text);
  assert.ok(texts.length > 3);
});

test("open paths: embeddings, and a file that comes back as it went", async () => {
  const { client } = newClient();
  const got = await client.embeddings.create({ model: "embedder", input: "Ada", encoding_format: "float" });
  assert.deepEqual(got.data[0].embedding, [0.5, -1]);
  const held = Buffer.alloc(3 << 20, "Ada Lovelace\0");
  const file = await client.files.create({ file: await OpenAI.toFile(held, "f.bin"), purpose: "batch" });
  const content = await client.files.content(file.id);
  assert.ok(held.equals(Buffer.from(await content.arrayBuffer())));
  assert.equal((await client.files.delete(file.id)).deleted, true);
});

test("open paths: what is not judged is not served", async () => {
  const { client } = newClient();
  const error = await raised(OpenAI.InternalServerError, () => client.responses.create({ model: "m", input: "Ada" }));
  assert.deepEqual([error.status, error.code], [501, "not_supported"]);
});
