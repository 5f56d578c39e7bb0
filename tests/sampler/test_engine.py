"""The engine: what it draws depends on the job alone, and its caches are shared, never copied."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from tests.models import tiny
from vinejax import policy, sampler
from vinejax.arrays import Finish
from vinejax.sampler import Jobs, Layout, Settings, Trunks, decode, engine, schedule, tables
from vinejax.stop import StopTable

KEY = jax.random.key(7)
SETTINGS = Settings(temperature=0.8, top_p=0.9, eos_ids=(2,))
LAYOUTS = {
    "1 slot": Layout(rows=1, slots=1, ring=32),
    "3 slots": Layout(rows=1, slots=3, ring=32),
    "16 slots": Layout(rows=4, slots=4, ring=32),
    "one trunk a row": Layout(rows=4, slots=4, ring=32, trunks_per_row=1),
    "short chunks": Layout(rows=2, slots=3, ring=32, chunk=5),
    "ring of 8": Layout(rows=2, slots=4, ring=8),
    "ring of 8, short chunks": Layout(rows=4, slots=2, ring=8, chunk=3),
}


def a_job_list(seed=0):
    rng = np.random.default_rng(seed)
    trunks = Trunks.of([rng.integers(3, 40, size=n) for n in (5, 17, 9, 30, 12)])
    states = [(t, p) for t, n in enumerate(trunks.length) for p in range(2, n + 1, 5)]
    trunk, prefix = np.repeat(np.array(states), 3, axis=0).T
    sample = np.tile(np.arange(3), len(states))
    return trunks, Jobs.of(trunk, prefix, sample, rng.integers(1, 25, size=len(trunk)))


@pytest.fixture(scope="module")
def model():
    config, params = tiny()
    return config, policy.unstack(params, config)


@pytest.fixture(scope="module")
def expected(model):
    config, weights = model
    trunks, jobs = a_job_list()
    return sampler.sample(weights, config, trunks, jobs, SETTINGS, KEY, layout=LAYOUTS["3 slots"])


def assert_same_samples(a, b):
    for name in ("tokens", "length", "finish"):
        assert_array_equal(getattr(a, name), getattr(b, name))
    for name in ("logprob", "logprob_full"):
        assert_allclose(getattr(a, name), getattr(b, name), atol=1e-4)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_layout_changes_no_token(model, expected, name):
    config, weights = model
    trunks, jobs = a_job_list()
    out = sampler.sample(weights, config, trunks, jobs, SETTINGS, KEY, layout=LAYOUTS[name])
    assert_same_samples(out, expected)
    assert out.counters.tokens_sampled == out.length.sum()
    assert (out.counters.rerooted > 0) == ("ring" in name)


@pytest.mark.parametrize("wave", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3))])
def test_the_wave_changes_no_token(model, expected, wave):
    config, weights = model
    trunks, jobs = a_job_list()
    out = sampler.sample(
        weights, config, trunks, jobs, SETTINGS, KEY, layout=LAYOUTS["16 slots"], wave=wave
    )
    assert_same_samples(out, expected)


def test_the_order_of_trunks_and_jobs_changes_no_token(model, expected):
    config, weights = model
    trunks, jobs = a_job_list()
    rng = np.random.default_rng(1)
    order, rows = rng.permutation(len(jobs)), rng.permutation(len(trunks.tokens))
    moved = Trunks.of([trunks.tokens[r] for r in rows])
    mixed = jobs.take(order)
    mixed = Jobs.of(
        np.argsort(rows)[mixed.trunk], mixed.prefix_length, mixed.sample, mixed.max_new_tokens
    )
    out = sampler.sample(weights, config, moved, mixed, SETTINGS, KEY, layout=LAYOUTS["3 slots"])
    assert_array_equal(out.tokens, expected.tokens[order])
    assert_array_equal(out.finish, expected.finish[order])


def test_a_prefix_is_continued_alike_whatever_else_is_in_the_batch(model, expected):
    config, weights = model
    trunks, jobs = a_job_list()
    for one in (0, 20, len(jobs) - 1):
        alone = sampler.sample(
            weights,
            config,
            trunks,
            jobs.take(np.array([one])),
            SETTINGS,
            KEY,
            layout=LAYOUTS["1 slot"],
        )
        width = alone.tokens.shape[1]
        assert_array_equal(alone.tokens[0], expected.tokens[one, :width])
        assert alone.finish[0] == expected.finish[one]


def test_bf16_disagrees_between_layouts_in_under_one_percent_of_tokens():
    config, params = tiny(compute_dtype="bfloat16", hidden=64, head_dim=16)
    weights = policy.unstack(params, config)
    trunks, jobs = a_job_list()
    runs = [
        sampler.sample(weights, config, trunks, jobs, SETTINGS, KEY, layout=LAYOUTS[name])
        for name in ("1 slot", "16 slots")
    ]
    # After the first different token two vines are different texts: count the tokens up to there.
    differ = runs[0].tokens != runs[1].tokens
    first = np.where(differ.any(axis=1), differ.argmax(axis=1) + 1, runs[0].length)
    share = differ.any(axis=1).sum() / first.sum()
    print(f"bf16: {share:.4%} of tokens differ between 1 and 16 slots")
    assert share < 0.01


def test_a_greedy_vine_equals_a_fresh_run_of_its_prefix(model):
    config, weights = model
    trunks, jobs = a_job_list()
    greedy = Settings(temperature=0.0, eos_ids=(2,))
    vines = sampler.sample(weights, config, trunks, jobs, greedy, KEY)
    prefixes = [trunks.tokens[t][:p] for t, p in zip(jobs.trunk, jobs.prefix_length, strict=True)]
    fresh_trunks = Trunks.of(prefixes)
    fresh_jobs = Jobs.at_ends(fresh_trunks, 1, jobs.max_new_tokens)
    fresh = sampler.sample(weights, config, fresh_trunks, fresh_jobs, greedy, jax.random.key(99))
    assert_same_samples(vines, fresh)


def test_cached_decoding_equals_the_scorer_at_every_position(model, expected):
    config, weights = model
    trunks, jobs = a_job_list()
    whole = [
        np.concatenate([trunks.tokens[t][:p], expected.tokens[j, : expected.length[j]]])
        for j, (t, p) in enumerate(zip(jobs.trunk, jobs.prefix_length, strict=True))
    ]
    rows = Trunks.of(whole)
    scores, _ = policy.score(
        weights, config, rows.padded(len(whole), 64), rows.length, SETTINGS.temperature
    )
    for j, p in enumerate(jobs.prefix_length):
        n = expected.length[j]
        assert_allclose(
            np.asarray(scores.logp)[j, p : p + n], expected.logprob_full[j, :n], atol=1e-4
        )


@pytest.mark.parametrize(
    "length", [1, 16, 17, *(pytest.param(n, marks=pytest.mark.slow) for n in (15, 31, 32, 33))]
)
def test_prefixes_around_the_edges_of_a_bucket(model, length):
    config, weights = model
    tokens = np.random.default_rng(length).integers(3, 40, size=length)
    greedy = Settings(temperature=0.0)
    trunks = Trunks.of([tokens])
    out = sampler.sample(weights, config, trunks, Jobs.at_ends(trunks, 1, 3), greedy, KEY)
    whole = np.concatenate([tokens, out.tokens[0]])[None]
    scores, _ = policy.score(weights, config, whole, np.array([length + 3]))
    assert_allclose(np.asarray(scores.logp)[0, length:], out.logprob_full[0], atol=1e-4)


def test_sampled_sequences_have_their_exact_probabilities():
    config, params = tiny(vocab_size=5, scale=2.0)
    weights = policy.unstack(params, config)
    settings = Settings(temperature=0.7, top_p=0.85, eos_ids=(1,))
    exact = enumerate_sequences(params, config, [3, 4], settings, budget=3)
    assert abs(sum(exact.values()) - 1) < 1e-5
    count = 8000
    trunks = Trunks.of([[3, 4]])
    out = sampler.sample(
        weights,
        config,
        trunks,
        Jobs.at_ends(trunks, count, 3),
        settings,
        KEY,
        layout=Layout(8, 16, 16),
    )
    seen = {}
    for row, n in zip(out.tokens, out.length, strict=True):
        seen[tuple(row[:n])] = seen.get(tuple(row[:n]), 0) + 1
    assert set(seen) <= set(exact)
    likely = [s for s, p in exact.items() if p * count >= 5]
    rest = 1 - sum(exact[s] for s in likely)
    observed = [seen.get(s, 0) for s in likely]
    predicted = [exact[s] * count for s in likely]
    if rest * count >= 5:
        observed.append(count - sum(observed))
        predicted.append(rest * count)
    else:
        predicted = list(np.array(predicted) * sum(observed) / sum(predicted))
    assert len(likely) > 8
    assert stats.chisquare(observed, predicted).pvalue > 1e-4


def enumerate_sequences(params, config, prefix, settings, budget):
    """Every continuation with its probability, from uncached forward passes and NumPy."""
    done, open_ = {}, {(): 1.0}
    for _ in range(budget):
        following = {}
        for tokens, mass in open_.items():
            logits = np.asarray(policy.forward(params, config, jnp.array([[*prefix, *tokens]])))[
                0, -1
            ]
            scaled = logits.astype(np.float64) / settings.temperature
            probs = np.exp(scaled - scaled.max())
            probs /= probs.sum()
            order = np.argsort(-probs, kind="stable")
            kept = order[
                : max(1, int((np.cumsum(probs[order]) - probs[order] < settings.top_p).sum()))
            ]
            for token in kept:
                grown = (*tokens, int(token))
                place = done if token in settings.eos_ids else following
                place[grown] = mass * probs[token] / probs[kept].sum()
        open_ = following
    return done | open_


def test_samples_of_a_node_differ_and_nodes_are_independent(model):
    config, weights = model
    flat = Settings(temperature=5.0)
    trunks = Trunks.of([[5, 6, 7], [5, 6, 8]])
    jobs = Jobs.at_ends(trunks, 40, 12)
    out = sampler.sample(weights, config, trunks, jobs, flat, KEY)
    assert len({tuple(t) for t in out.tokens}) == len(jobs)
    again = sampler.sample(weights, config, trunks, jobs, flat, jax.random.key(8))
    assert (again.tokens != out.tokens).mean() > 0.8
    same = (
        out.tokens[:40] == out.tokens[40:]
    ).mean()  # sample k of one node against sample k of the next
    other = (out.tokens[:40] == np.roll(out.tokens[40:], 1, axis=0)).mean()
    assert abs(same - other) < 0.08


def test_copies_of_a_node_get_samples_of_their_own(model):
    config, weights = model
    trunks = Trunks.of([[5, 6, 7]])
    jobs = Jobs.of([0, 0, 0], 3, 0, 10, copy=[0, 1, 0])
    out = sampler.sample(weights, config, trunks, jobs, Settings(2.0), KEY)
    assert_array_equal(out.tokens[0], out.tokens[2])
    assert (out.tokens[0] != out.tokens[1]).any()


def head_that_says(config, params, order):
    """Weights under which the greedy continuation of any token t is order[t]."""
    embed = jnp.eye(config.vocab_size, config.hidden) * 30
    head = jnp.zeros((config.hidden, config.vocab_size))
    for token, following in order.items():
        head = head.at[token, following].set(5.0)
    layers = jax.tree.map(jnp.zeros_like, params["layers"])
    return policy.unstack(params | {"embed": embed, "head": head, "layers": layers}, config)


def test_finish_reasons_and_what_they_keep():
    config, params = tiny(hidden=40, head_dim=10)
    weights = head_that_says(config, params, {5: 6, 6: 7, 7: 2, 9: 2, 10: 10})
    settings = Settings(0.0, eos_ids=(2,))
    trunks = Trunks.of([[5], [9], [10], [5], [5]])
    jobs = Jobs.of([0, 1, 2, 3, 4], 1, 0, [10, 10, 4, 3, 2])
    out = sampler.sample(weights, config, trunks, jobs, settings, KEY)
    assert [Finish(f).name for f in out.finish] == ["EOS", "EOS", "LENGTH", "EOS", "LENGTH"]
    assert [list(t[:n]) for t, n in zip(out.tokens, out.length, strict=True)] == [
        [6, 7, 2],  # the end-of-sequence token is part of the sample
        [2],  # also when it comes first
        [10, 10, 10, 10],
        [6, 7, 2],  # at the last allowed place it is still an end, not a cut
        [6, 7],
    ]
    assert (out.tokens[1, 1:] == 0).all()
    assert (out.logprob_full[1, 1:] == 0).all()


def test_a_budget_of_zero_is_cut_off_before_it_begins(model):
    config, weights = model
    trunks = Trunks.of([[5, 6]])
    out = sampler.sample(weights, config, trunks, Jobs.of([0, 0], 2, [0, 1], [0, 3]), SETTINGS, KEY)
    assert out.finish[0] == Finish.LENGTH
    assert out.length[0] == 0
    assert out.length[1] > 0


def test_stop_strings_end_a_sample_wherever_they_lie_in_the_tokens():
    config, params = tiny(hidden=40, head_dim=10)
    pieces = [b""] * 40
    pieces[5], pieces[6], pieces[7], pieces[8] = b"a.\n", b"\nEN", b"D!", b"x"
    stop = StopTable.build(("\n\nEND",), pieces)
    weights = head_that_says(config, params, {5: 6, 6: 7, 7: 8, 8: 5})
    settings = Settings(0.0, eos_ids=(2,), stop=stop)
    trunks = Trunks.of([[9, 8], [9, 8, 5], [9, 8, 5, 6], [9, 5]], prompt_length=[1, 1, 1, 2])
    jobs = Jobs.at_ends(trunks, 1, 20)
    out = sampler.sample(weights, config, trunks, jobs, settings, KEY)
    kept = [list(t[:n]) for t, n in zip(out.tokens, out.length, strict=True)]
    # In the last trunk "a.\n" belongs to the prompt, where no stop string can begin.
    assert kept == [[5, 6, 7], [6, 7], [7], [6, 7, 8, 5, 6, 7]]
    assert (out.finish == Finish.STOP).all()


def test_a_value_that_is_not_finite_ends_its_job_with_an_error(model):
    config, params = tiny()
    broken = params | {"embed": params["embed"].at[11].set(jnp.nan)}
    trunks = Trunks.of([[5, 6, 7], [5, 11]])
    jobs = Jobs.at_ends(trunks, 4, 6)
    weights = policy.unstack(broken, config)
    out = sampler.sample(weights, config, trunks, jobs, Settings(0.5), KEY, layout=Layout(1, 4, 16))
    good = sampler.sample(policy.unstack(params, config), config, trunks, jobs, Settings(0.5), KEY)
    assert (out.finish[4:] == Finish.ERROR).all()
    assert (out.length[4:] == 0).all()
    for j in range(4):  # the others are as they would have been, up to the token that is broken
        n = int(np.append(np.flatnonzero(good.tokens[j] == 11), 6)[0])
        assert_array_equal(out.tokens[j, :n], good.tokens[j, :n])


def test_weights_that_are_all_nan_end_every_job(model):
    config, params = tiny()
    trunks, jobs = a_job_list()
    weights = policy.unstack(jax.tree.map(lambda x: x * jnp.nan, params), config)
    out = sampler.sample(weights, config, trunks, jobs, SETTINGS, KEY)
    assert (out.finish == Finish.ERROR).all()
    assert out.counters.tokens_sampled == 0


def poisoned(state, value):
    """A fresh state with `value` in every cell of its caches, as unwritten memory might have it."""
    return state._replace(
        trunks=jax.tree.map(lambda x: x + value, state.trunks),
        ring=jax.tree.map(lambda x: x + value, state.ring),
    )


def test_unused_cache_cells_have_no_influence(model, expected, monkeypatch):
    config, weights = model
    trunks, jobs = a_job_list()
    fresh = schedule.init
    monkeypatch.setattr(schedule, "init", lambda *a: poisoned(fresh(*a), 1e9))
    bank = sampler.prefill(weights, config, trunks, np.arange(5), 8)
    cells = np.arange(bank.keys[0].shape[-1])
    is_unused = jnp.asarray(cells >= np.append(trunks.length, [0, 0, 0])[:, None])
    keys = [jnp.where(is_unused[:, None, None, :], 1e9, k) for k in bank.keys]
    values = [jnp.where(is_unused[:, None, :, None], 1e9, v) for v in bank.values]
    for name in ("3 slots", "ring of 8"):
        out = sampler.sample(
            weights, config, trunks, jobs, SETTINGS, KEY, layout=LAYOUTS[name], cache=(keys, values)
        )
        assert_same_samples(out, expected)


def test_given_the_trunks_cache_nothing_is_prefilled(model, expected):
    config, weights = model
    trunks, jobs = a_job_list()
    _, cache = policy.score(weights, config, trunks.padded(5, 32), trunks.length, keep_cache=True)
    out = sampler.sample(weights, config, trunks, jobs, SETTINGS, KEY, cache=cache)
    assert out.counters.tokens_prefilled == 0
    assert_same_samples(out, expected)
    assert expected.counters.tokens_prefilled == trunks.length.sum()


def test_the_cache_belongs_to_the_weights_it_was_made_with(model, expected):
    """New weights with no cache given: nothing of the old ones is left anywhere."""
    config, weights = model
    trunks, jobs = a_job_list()
    other = policy.unstack(tiny(seed=5)[1], config)
    changed = sampler.sample(other, config, trunks, jobs, SETTINGS, KEY, layout=LAYOUTS["3 slots"])
    assert (changed.tokens != expected.tokens).any()
    back = sampler.sample(weights, config, trunks, jobs, SETTINGS, KEY, layout=LAYOUTS["3 slots"])
    assert_same_samples(back, expected)


def test_other_jobs_of_the_same_shape_compile_nothing(model, compiles):
    config, weights = model
    sampler.sample(weights, config, *a_job_list(), SETTINGS, KEY, layout=LAYOUTS["16 slots"])
    before = compiles.count
    trunks, jobs = a_job_list(seed=3)
    fewer = jobs.take(np.arange(0, len(jobs), 2))
    sampler.sample(
        weights, config, trunks, fewer, SETTINGS, jax.random.key(1), layout=LAYOUTS["16 slots"]
    )
    assert compiles.count == before


def test_the_compiled_loop_has_no_copy_per_slot_and_no_scatter(model):
    config, weights = model
    layout, cells = Layout(rows=2, slots=8, ring=16), 64
    text = compiled_loop(weights, config, layout, cells)
    assert not re.search(r"\bscatter\(", text)
    width = layout.trunks_per_row * cells
    shapes = [tuple(map(int, s.split(","))) for s in re.findall(r"f32\[([\d,]+)\]", text)]
    row = config.kv_heads * config.head_dim * width
    assert any(np.prod(s) == layout.rows * row for s in shapes), (
        "the trunk cache itself should be there"
    )
    per_slot = layout.slots * layout.rows * width * config.head_dim
    assert not [s for s in shapes if np.prod(s) >= per_slot and width in s and config.head_dim in s]


def compiled_loop(weights, config, layout, cells):
    trunks = Trunks.of([[5, 6, 7]])
    jobs = Jobs.at_ends(trunks, 4, 8)
    table = tables.table(trunks, jobs, SETTINGS, KEY, 64)
    queue = tables.queue(jobs.trunk, 4)
    bank = decode.empty_cache(config, 4, cells)
    state = schedule.init(config, layout, cells, queue)
    stop = tables.stop_arrays(SETTINGS, config)
    lowered = engine.run_chunk.lower(
        weights, config, SETTINGS, layout, bank, queue, table, stop, state
    )
    return lowered.compile().as_text()


def test_bad_jobs_are_refused(model):
    config, weights = model
    trunks = Trunks.of([[5, 6]])
    for prefix in (0, 3):
        with pytest.raises(ValueError, match=r"keeps . tokens of a trunk of 2"):
            sampler.sample(weights, config, trunks, Jobs.of([0], prefix, 0, 5), SETTINGS, KEY)
    with pytest.raises(ValueError, match="names trunk 1"):
        sampler.sample(weights, config, trunks, Jobs.of([1], 1, 0, 5), SETTINGS, KEY)
    with pytest.raises(ValueError, match="no token"):
        Trunks.of([[]])
    with pytest.raises(ValueError, match=r"engine\.ring"):
        Layout(1, 1, ring=1)
