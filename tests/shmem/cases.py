# SPDX-License-Identifier: BSD-3-Clause
"""Makes programs that call each function of tables/shmem.json by each of its names and compare with its definition.

A case is C text, by the Rust function that a row names. In it T is the type of an element, D symmetric memory of the PE (4 KiB), S
memory for symmetric sources, F the function; C stands before the first argument where a context may (`F(C D, ...)`), PE(x) is the
number that PE x has in the context, Q completes what the context has. V(i, pe) are values that differ. `team` has the PEs of the
world, in pass 2 the other way round; `mine` and `size` are its.
"""
import json

ELEMENTS = {"8": "uint8_t", "16": "uint16_t", "32": "uint32_t", "64": "uint64_t", "128": "unsigned __int128", "mem": "unsigned char"}

PUT = "ZERO(D, 8); FILL(s, 6, me); B; F(C D, s, 5, PE(next)); Q; B; SAME(D, 5, before); CHECK(D[5] == (T)0); B;"
GET = "FILL(D, 6, me); T s[6] = {0}; B; F(C s, D, 5, PE(next)); Q; SAME(s, 5, next); CHECK(s[5] == (T)0); B;"
SET = "ZERO(D, 2); B; F(C D, V(1, me), PE(next)); Q; B; CHECK(D[0] == V(1, before) && D[1] == (T)0); B;"
FETCH = "D[0] = V(2, me); B; CHECK(F(C D, PE(next)) == V(2, next)); B;"
SIGNAL = """uint64_t *sig = (uint64_t *)S; *sig = 0; ZERO(D, 8); FILL(s, 6, me); B;
    F(C D, s, 5, sig, 7, SHMEM_SIGNAL_SET, PE(next)); shmem_signal_wait_until(sig, SHMEM_CMP_EQ, 7); SAME(D, 5, before); B;
    F(C D, s + 1, 4, sig, 3, SHMEM_SIGNAL_ADD, PE(next)); shmem_signal_wait_until(sig, SHMEM_CMP_EQ, 10);
    for (int i = 0; i < 4; i++) CHECK(D[i] == V(i + 1, before)); Q; B;"""
# For each operation: what all PEs do to a word of PE 0, and the word's value afterwards.
ADD, AND, OR, XOR = (
    (0, "(T)(me + 1)", "(T)(n * (n + 1) / 2)", "old < (T)11"), (63, "(T)~(1u << me)", "(T)(63 & ~((1u << n) - 1))", "(old >> me & 1) == 1"),
    (0, "(T)(1u << me)", "(T)((1u << n) - 1)", "(old >> me & 1) == 0"), (5, "(T)(1u << me)", "(T)(5 ^ ((1u << n) - 1))", "(old >> me & 1) == (5 >> me & 1)"))


def changed(first, operand, last, seen, way):
    operand = f"{operand}, " if operand else ""
    call = {"plain": f"F(C D, {operand}PE(0));", "fetch": f"T old = F(C D, {operand}PE(0)); CHECK({seen});",
            "later": f"T old; F(C &old, D, {operand}PE(0)); Q; CHECK({seen});"}[way]
    return f"D[0] = (T){first}; D[1] = (T)0; B; {call} Q; B; if (me == 0) CHECK(D[0] == {last} && D[1] == (T)0); B;"


CASES = {
    "put": PUT, "put_nbi": PUT, "get": GET, "get_nbi": GET, "p": SET, "g": FETCH,
    "iput": """ZERO(D, 16); FILL(s, 12, me); B; F(C D, s, 2, 3, 4, PE(next)); Q; B;
        for (int i = 0; i < 4; i++) CHECK(D[2 * i] == V(3 * i, before) && D[2 * i + 1] == (T)0); B;""",
    "iget": """FILL(D, 12, me); T s[12] = {0}; B; F(C s, D, 2, 3, 4, PE(next));
        for (int i = 0; i < 4; i++) CHECK(s[2 * i] == V(3 * i, next) && s[2 * i + 1] == (T)0); B;""",
    "ibput": """ZERO(D, 16); FILL(s, 12, me); B; F(C D, s, 4, 3, 2, 4, PE(next)); Q; B;
        for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) CHECK(D[4 * i + j] == (j < 2 ? V(3 * i + j, before) : (T)0)); B;""",
    "ibget": """FILL(D, 12, me); T s[16] = {0}; B; F(C s, D, 4, 3, 2, 4, PE(next));
        for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) CHECK(s[4 * i + j] == (j < 2 ? V(3 * i + j, next) : (T)0)); B;""",
    "put_signal": SIGNAL,
    "signal::add": "uint64_t *sig = (uint64_t *)D; *sig = 5; B; F(C sig, (uint64_t)(me + 1), PE(0)); Q; B; if (me == 0) CHECK(*sig == 5u + n * (n + 1u) / 2); B;",
    "signal::set": "uint64_t *sig = (uint64_t *)D; *sig = 5; B; F(C sig, (uint64_t)me + 9, PE(next)); Q; B; CHECK(*sig == before + 9u); B;",
    "signal::fetch": "uint64_t *sig = (uint64_t *)D; *sig = 5; B; shmem_signal_set(sig, me + 6u, next); B; CHECK(F(sig) == before + 6u); B;",
    "signal::wait_until": "uint64_t *sig = (uint64_t *)D; *sig = 0; B; shmem_signal_set(sig, me + 6u, next); CHECK(F(sig, SHMEM_CMP_NE, 0) == before + 6u); B;",
    "amo::fetch": FETCH, "amo::set": SET,
    "swap": "D[0] = V(1, me); B; CHECK(F(C D, V(2, me), PE(next)) == V(1, next)); Q; B; CHECK(D[0] == V(2, before)); B;",
    "compare_swap": """D[0] = V(1, me); B; CHECK(F(C D, V(2, next), V(3, me), PE(next)) == V(1, next));
        CHECK(F(C D, V(1, next), V(3, me), PE(next)) == V(1, next)); Q; B; CHECK(D[0] == V(3, before)); B;""",
    "fetch_nbi": "D[0] = V(1, me); T old; B; F(C &old, D, PE(next)); Q; CHECK(old == V(1, next)); B;",
    "swap_nbi": "D[0] = V(1, me); T old; B; F(C &old, D, V(2, me), PE(next)); Q; CHECK(old == V(1, next)); B; CHECK(D[0] == V(2, before)); B;",
    "compare_swap_nbi": """D[0] = V(1, me); T old, other; B; F(C &old, D, V(2, next), V(3, me), PE(next)); Q; F(C &other, D, V(1, next), V(3, me), PE(next)); Q;
        CHECK(old == V(1, next) && other == V(1, next)); B; CHECK(D[0] == V(3, before)); B;""",
    "fetch_inc": changed(0, "", "(T)n", "old < (T)n", "fetch"), "inc": changed(0, "", "(T)n", "", "plain"),
    "fetch_inc_nbi": changed(0, "", "(T)n", "old < (T)n", "later"),
    "wait::until": """ZERO(D, 1); B; P(D, V(2, me), next); F(D, SHMEM_CMP_EQ, V(2, before)); F(D, SHMEM_CMP_NE, V(3, before)); F(D, SHMEM_CMP_GT, V(1, before));
        F(D, SHMEM_CMP_GE, V(2, before)); F(D, SHMEM_CMP_LT, V(3, before)); F(D, SHMEM_CMP_LE, V(2, before)); CHECK(D[0] == V(2, before)); B;""",
    "wait::test": """D[0] = (T)5; for (int other = 4; other < 7; other++) {
            CHECK(F(D, SHMEM_CMP_EQ, (T)other) == (5 == other)); CHECK(F(D, SHMEM_CMP_NE, (T)other) == (5 != other));
            CHECK(F(D, SHMEM_CMP_GT, (T)other) == (5 > other)); CHECK(F(D, SHMEM_CMP_GE, (T)other) == (5 >= other));
            CHECK(F(D, SHMEM_CMP_LT, (T)other) == (5 < other)); CHECK(F(D, SHMEM_CMP_LE, (T)other) == (5 <= other)); } B;
        P(D, V(2, me), next); while (!F(D, SHMEM_CMP_EQ, V(2, before))); B;""",
    "wait::differs": "ZERO(D, 1); B; P(D, V(2, me), next); F(D, (T)0); CHECK(D[0] == V(2, before)); B;",
    "wait::long_differs": "long *d = (long *)D; *d = 0; B; shmem_long_p(d, me + 6, next); F(d, 0); CHECK(*d == before + 6); B;",
    "order::fence": """int *d = (int *)D, s[8]; d[8] = 0; for (int i = 0; i < 8; i++) s[i] = me + i; B; shmem_ctx_int_put_nbi(CTX d, s, 8, PE(next)); F(CTX0);
        shmem_ctx_int_p(CTX d + 8, 1, PE(next)); shmem_int_wait_until(d + 8, SHMEM_CMP_EQ, 1); for (int i = 0; i < 8; i++) CHECK(d[i] == before + i); Q; B;""",
    "order::quiet": """int *d = (int *)D, s[8], got = -1; for (int i = 0; i < 8; i++) s[i] = me + i; B; shmem_ctx_int_put_nbi(CTX d, s, 8, PE(next)); F(CTX0);
        shmem_ctx_int_get_nbi(CTX &got, d + 7, 1, PE(next)); F(CTX0); CHECK(got == me + 7); B; for (int i = 0; i < 8; i++) CHECK(d[i] == before + i); B;""",
    "order::pe_quiet": """int *d = (int *)D, got = -1, pes[2] = {PE(next), PE(before)}; B; shmem_ctx_int_p(CTX d, me + 3, PE(next)); F(CTXC pes, 1);
        shmem_ctx_int_get_nbi(CTX &got, d, 1, PE(next)); F(CTXC pes, 2); CHECK(got == me + 3); F(CTXC NULL, 0); B; CHECK(*d == before + 3); B;""",
    "lock::set": "LOCKED(F(lock), shmem_clear_lock(lock))", "lock::clear": "LOCKED(shmem_set_lock(lock), F(lock))",
    "lock::test": "LOCKED(while (F(lock)), shmem_clear_lock(lock)); if (me == 0) { CHECK(F(lock) == 0 && F(lock) == 1); shmem_clear_lock(lock); } B;",
    "coll::barrier_all": "SYNCED(F())", "coll::sync_all": "SYNCED((shmem_quiet(), F()))", "coll::team_sync": "SYNCED((shmem_quiet(), CHECK(F(team) == 0)))",
    "coll::barrier": "SYNCED(F(0, 0, n, psync))", "coll::sync": "SYNCED((shmem_quiet(), F(0, 0, n, psync)))",
    "broadcast": "OVER; CHECK(F(team, D, S, 5, size - 1) == 0); SAME(D, 5, size - 1); CHECK(D[5] == (T)0); B;",
    "collect": """OVER; CHECK(F(team, D, S, (size_t)mine % 2 + 1) == 0);
        for (int pe = 0, at = 0; pe < size; pe++) for (int i = 0; i < pe % 2 + 1; i++) CHECK(D[at++] == V(i, pe)); B;""",
    "fcollect": "OVER; CHECK(F(team, D, S, 2) == 0); for (int i = 0; i < 2 * size; i++) CHECK(D[i] == V(i % 2, i / 2)); CHECK(D[2 * size] == (T)0); B;",
    "alltoall": "OVER; CHECK(F(team, D, S, 2) == 0); for (int i = 0; i < 2 * size; i++) CHECK(D[i] == V(2 * mine + i % 2, i / 2)); B;",
    "alltoalls": """OVER; CHECK(F(team, D, S, 3, 2, 2) == 0);
        for (int i = 0; i < 2 * size; i++) CHECK(D[3 * i] == V(2 * (2 * mine + i % 2), i / 2) && D[3 * i + 1] == (T)0); B;""",
    # The old functions run over all PEs, then over those of even number. The root of a broadcast keeps its own data.
    "broadcast_old": """for (int log = 0; log < 2; log++) { ACTIVE; if (in) F(D, S, 5, k - 1, 0, log, k, psync + 4 * log);
        if (in) for (int i = 0; i < 5; i++) CHECK(D[i] == (mine == k - 1 ? (T)0 : V(i, k - 1))); B; }""",
    "collect_old": """for (int log = 0; log < 2; log++) { ACTIVE; if (in) F(D, S, (size_t)mine % 2 + 1, 0, log, k, psync + 4 * log);
        if (in) for (int pe = 0, at = 0; pe < k; pe++) for (int i = 0; i < pe % 2 + 1; i++) CHECK(D[at++] == V(i, pe)); B; }""",
    "fcollect_old": """for (int log = 0; log < 2; log++) { ACTIVE; if (in) F(D, S, 2, 0, log, k, psync + 4 * log);
        if (in) for (int i = 0; i < 2 * k; i++) CHECK(D[i] == V(i % 2, i / 2)); B; }""",
    "alltoall_old": """for (int log = 0; log < 2; log++) { ACTIVE; if (in) F(D, S, 2, 0, log, k, psync + 4 * log);
        if (in) for (int i = 0; i < 2 * k; i++) CHECK(D[i] == V(2 * mine + i % 2, i / 2)); B; }""",
    "alltoalls_old": """for (int log = 0; log < 2; log++) { ACTIVE; if (in) F(D, S, 3, 2, 2, 0, log, k, psync + 4 * log);
        if (in) for (int i = 0; i < 2 * k; i++) CHECK(D[3 * i] == V(2 * (2 * mine + i % 2), i / 2)); B; }""",
    "sum_inscan": "OVER; CHECK(F(team, D, S, 4) == 0); for (int i = 0; i < 4; i++) { T sum = (T)0; for (int pe = 0; pe <= mine; pe++) sum += V(i, pe); CHECK(D[i] == sum); } B;",
    "sum_exscan": "OVER; CHECK(F(team, D, S, 4) == 0); for (int i = 0; i < 4; i++) { T sum = (T)0; for (int pe = 0; pe < mine; pe++) sum += V(i, pe); CHECK(D[i] == sum); } B;",

    "setup::my_pe": "CHECK(F() == me);", "setup::n_pes": "CHECK(F() == n);", "setup::start_pes": "F(0); CHECK(shmem_my_pe() == me);",
    "setup::query_thread": "int level = -1; F(&level); CHECK(level == SHMEM_THREAD_MULTIPLE);", "setup::query_initialized": "int is = -1; F(&is); CHECK(is == 1);",
    "setup::pe_accessible": "CHECK(F(next) == 1 && F(n) == 0 && F(-1) == 0);",
    "setup::addr_accessible": "int own; CHECK(F(D, next) == 1 && F(&own, next) == 0 && F(D, n) == 0);",
    "setup::ptr": "int *d = (int *)D; *d = me; B; int *there = F(d, next); if (there) CHECK(*there == next); CHECK(F(d, me) == d && F(d, n) == NULL); B;",
    "team::ptr": """int *d = (int *)D; *d = mine; B; int *there = F(team, d, (mine + 1) % size); if (there) CHECK(*there == (mine + 1) % size);
        CHECK(F(team, d, mine) == d && F(team, d, size) == NULL && F(SHMEM_TEAM_INVALID, d, 0) == NULL); B;""",
    "setup::version": "int major = 0, minor = 0; F(&major, &minor); CHECK(major == SHMEM_MAJOR_VERSION && minor == SHMEM_MINOR_VERSION);",
    "setup::name": "char name[SHMEM_MAX_NAME_LEN]; F(name); CHECK(!strcmp(name, SHMEM_VENDOR_STRING));",
    "setup::pcontrol": "F(0); F(1); F(2, 3.0);", "setup::interoperability": "CHECK(F(SHMEM_PROGRESS_MPI) == 1 && F(-1) == 0);",
    "setup::nothing": "F();", "setup::nothing_at": "F(D);",
    "heap::malloc": "char *one = F(100), *other = F(1); CHECK(one && other && other != one && F(0) == NULL); TAKEN(one, 100); shmem_free(other); shmem_free(one);",
    "heap::malloc_with_hints": "char *one = F(100, SHMEM_MALLOC_ATOMICS_REMOTE | SHMEM_MALLOC_SIGNAL_REMOTE); CHECK(one); TAKEN(one, 100); shmem_free(one);",
    "heap::calloc": "char *one = F(25, 4); CHECK(one); for (int i = 0; i < 100; i++) CHECK(!one[i]); TAKEN(one, 100); shmem_free(one); CHECK(F(SIZE_MAX, 2) == NULL);",
    "heap::align": """for (size_t to = sizeof(void *); to <= 1 << 20; to *= 8) { char *one = F(to, 100); CHECK(one && (uintptr_t)one % to == 0); TAKEN(one, 100); shmem_free(one); }
        CHECK(F(24, 100) == NULL);""",
    "heap::realloc": """char *one = F(NULL, 100); for (int i = 0; i < 100; i++) one[i] = (char)(me + i); one = F(one, 5000); CHECK(one);
        for (int i = 0; i < 100; i++) CHECK(one[i] == (char)(me + i)); one = F(one, 10); for (int i = 0; i < 10; i++) CHECK(one[i] == (char)(me + i)); CHECK(F(one, 0) == NULL);""",
    "heap::free": "char *one = shmem_malloc(100); F(one); char *other = shmem_malloc(100); CHECK(one == other); F(other); F(NULL);",
    "team::my_pe": "CHECK(F(SHMEM_TEAM_WORLD) == me && F(SHMEM_TEAM_INVALID) == -1 && F(team) == mine);",
    "team::n_pes": "CHECK(F(SHMEM_TEAM_WORLD) == n && F(SHMEM_TEAM_INVALID) == -1 && F(SHMEM_TEAM_SHARED) >= 1);",
    "team::get_config": "shmem_team_config_t config = {-1}; CHECK(F(team, SHMEM_TEAM_NUM_CONTEXTS, &config) == 0 && config.num_contexts >= 0 && F(SHMEM_TEAM_INVALID, 0, &config) != 0);",
    "team::translate_pe": "CHECK(F(team, mine, SHMEM_TEAM_WORLD) == me && F(SHMEM_TEAM_WORLD, me, team) == mine && F(team, size, SHMEM_TEAM_WORLD) == -1 && F(SHMEM_TEAM_INVALID, 0, team) == -1);",
    "team::split_strided": """shmem_team_t odd; shmem_team_config_t config = {3}, got = {0};
        CHECK((F(SHMEM_TEAM_WORLD, 1, 2, n / 2, &config, SHMEM_TEAM_NUM_CONTEXTS, &odd) == 0) == (n > 1));
        if (n > 1) CHECK((odd != SHMEM_TEAM_INVALID) == (me % 2 == 1)); else CHECK(odd == SHMEM_TEAM_INVALID);
        if (odd != SHMEM_TEAM_INVALID) { CHECK(shmem_team_n_pes(odd) == n / 2 && shmem_team_my_pe(odd) == me / 2);
            CHECK(shmem_team_get_config(odd, SHMEM_TEAM_NUM_CONTEXTS, &got) == 0 && got.num_contexts == 3); shmem_team_destroy(odd); }
        CHECK(F(SHMEM_TEAM_WORLD, 0, 1, n + 1, NULL, 0, &odd) != 0 && odd == SHMEM_TEAM_INVALID); B;""",
    "team::split_2d": """shmem_team_t x, y; CHECK(F(SHMEM_TEAM_WORLD, 3, NULL, 0, &x, NULL, 0, &y) == 0); int across = n < 3 ? n : 3;
        CHECK(shmem_team_my_pe(x) == me % across && shmem_team_my_pe(y) == me / across); CHECK(shmem_team_n_pes(x) == (n - me / across * across < across ? n % across : across));
        shmem_team_destroy(x); shmem_team_destroy(y); CHECK(F(SHMEM_TEAM_INVALID, 3, NULL, 0, &x, NULL, 0, &y) != 0 && x == SHMEM_TEAM_INVALID); B;""",
    "team::destroy": "shmem_team_t own; CHECK(shmem_team_split_strided(team, 0, 1, size, NULL, 0, &own) == 0); F(own); F(SHMEM_TEAM_INVALID); B;",
    "context::create": "for (long o = 0; o < 8; o++) { shmem_ctx_t own; CHECK(F(o, &own) == 0 && own != SHMEM_CTX_INVALID); shmem_ctx_int_p(own, (int *)D, 5, me); shmem_ctx_quiet(own); CHECK(*(int *)D == 5); shmem_ctx_destroy(own); }",
    "context::create_of_team": """shmem_ctx_t own; int *d = (int *)D; CHECK(F(team, SHMEM_CTX_SERIALIZED, &own) == 0); B; shmem_ctx_int_p(own, d, mine, (mine + 1) % size); shmem_ctx_quiet(own); B;
        CHECK(*d == (mine + size - 1) % size); shmem_ctx_destroy(own); CHECK(F(SHMEM_TEAM_INVALID, 0, &own) != 0 && own == SHMEM_CTX_INVALID); B;""",
    "context::destroy": """shmem_ctx_t own; int *d = (int *)D, five = 5; CHECK(shmem_ctx_create(0, &own) == 0); *d = 0; B; shmem_ctx_int_put_nbi(own, d, &five, 1, next); F(own); B;
        CHECK(*d == 5); F(SHMEM_CTX_INVALID); B;""",
    "context::get_team": """shmem_team_t found; CHECK(F(ctx, &found) == 0 && found == ctx_team && F(SHMEM_CTX_DEFAULT, &found) == 0 && found == SHMEM_TEAM_WORLD);
        CHECK(F(SHMEM_CTX_INVALID, &found) != 0 && found == SHMEM_TEAM_INVALID);""",
    "context::session_start": "SESSION(F(ctx, SHMEM_CTX_SESSION_BATCH, &config, SHMEM_CTX_SESSION_TOTAL_OPS), shmem_ctx_session_stop(ctx))",
    "context::session_stop": "SESSION(shmem_ctx_session_start(ctx, 0, NULL, 0), F(ctx))",
}
for kind, rule in {"add": ADD, "and": AND, "or": OR, "xor": XOR}.items():
    for name, way in {kind: "plain", f"fetch_{kind}": "fetch", f"fetch_{kind}_nbi": "later"}.items():
        CASES[f"amo::{name}"] = changed(*rule, way)
COMBINED = {"and": "sum & next", "or": "sum | next", "xor": "sum ^ next", "max": "next > sum ? next : sum", "min": "next < sum ? next : sum", "sum": "sum + next", "prod": "sum * next"}
for kind, how in COMBINED.items():
    serial = f"REDUCED(%s, {how.replace('sum', 'so_far').replace('next', 'other')});"
    CASES[f"{kind}_reduce"] = f"TERMS; B; CHECK(F(team, D, S, 4) == 0); {serial % 'size'} B; CHECK(F(team, S, S, 4) == 0); for (int i = 0; i < 4; i++) CHECK(S[i] == D[i]); B;"
    CASES[f"{kind}_to_all"] = f"for (int log = 0; log < 2; log++) {{ ACTIVE; TERMS; B; if (in) F(D, S, 4, 0, log, k, (void *)work, psync + 4 * log); if (in) {serial % 'k'} B; }}"
SEVERAL = "int none[4] = {1, 1, 1, 1}, status[4] = {0, 1, 0, 0}; T values[4] = {V(0, before), V(9, 9), V(2, before), V(3, before)}; (void)none; (void)values; ZERO(D, 4); B;"
PUTS = "for (int i = 0; i < 4; i++) if (i != 1) P(D + i, V(i, me), next);"
for vector, what, one in ("", "SHMEM_CMP_NE, (T)0", "SHMEM_CMP_EQ, V(2, before)"), ("_vector", "SHMEM_CMP_EQ, values", None):
    one, index = (one, "== 2") if one else (what, "!= SIZE_MAX")
    CASES.update({
        f"until_all{vector}": f"{SEVERAL} {PUTS} F(D, 4, status, {what}); CHECK(D[0] == values[0] && D[2] == values[2] && D[3] == values[3] && D[1] == (T)0); F(D, 4, none, {what}); B;",
        f"until_any{vector}": f"{SEVERAL} {PUTS} size_t at = F(D, 4, NULL, {one}); CHECK(at {index} && D[at] == values[at]); CHECK(F(D, 4, none, {what}) == SIZE_MAX); B;",
        f"until_some{vector}": f"""{SEVERAL} {PUTS} size_t at[4], found = F(D, 4, at, status, {what}); CHECK(found >= 1 && found <= 3); B;
            CHECK(F(D, 4, at, status, {what}) == 3 && at[0] == 0 && at[1] == 2 && at[2] == 3 && F(D, 4, at, none, {what}) == 0); B;""",
        f"test_all{vector}": f"{SEVERAL} CHECK(F(D, 4, status, {what}) == 0); B; {PUTS} while (!F(D, 4, status, {what})); B; CHECK(F(D, 4, NULL, {what}) == 0); B;",
        f"test_any{vector}": f"{SEVERAL} CHECK(F(D, 4, NULL, {what}) == SIZE_MAX); B; {PUTS} size_t at; while ((at = F(D, 4, NULL, {one})) == SIZE_MAX); CHECK(at {index}); B;",
        f"test_some{vector}": f"""{SEVERAL} size_t at[4]; CHECK(F(D, 4, at, NULL, {what}) == 0); B; {PUTS} while (F(D, 4, at, status, {what}) < 3);
            CHECK(at[0] == 0 && at[1] == 2 && at[2] == 3); B;""",
    })
# Functions that main calls, and functions for which `run` has jobs.
ELSEWHERE = {"setup::init", "setup::init_thread", "setup::finalize", "setup::global_exit"}

HEAD = """#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int me, n, next, before, mine, size, pass, failures;
static shmem_ctx_t ctx;
static shmem_team_t team, ctx_team;
static _Alignas(64) char statics[4096];
static long psync[8], locked, counted;
static long double work[64];
static void bad(const char *function, const char *what) { failures++; fprintf(stderr, "PE %d of %d: %s: %s\\n", me, n, function, what); }
#define CHECK(what) ((what) ? (void)0 : bad(NAME, #what))
#define V(i, pe) ((T)((i) % 5 + (pe) % 4 * 7 + 1))
#define B shmem_barrier_all()
#define ZERO(at, count) for (int i = 0; i < (count); i++) (at)[i] = (T)0
#define FILL_(at, count, pe) for (int i = 0; i < (count); i++) (at)[i] = V(i, pe)
#define SAME(at, count, pe) for (int i = 0; i < (count); i++) CHECK((at)[i] == V(i, pe))
#define SYNCED(call) int *d = (int *)D, s = me + 5; *d = 0; B; shmem_int_put_nbi(d, &s, 1, next); call; CHECK(*d == before + 5); B
#define LOCKED(take, leave) long *lock = &locked; if (me == 0) counted = 0; B; for (int i = 0; i < 4; i++) { take; \\
    long value = shmem_long_g(&counted, 0); shmem_long_p(&counted, value + 1, 0); leave; } B; CHECK(shmem_long_g(&counted, 0) == 4 * n); B
#define TAKEN(at, bytes) do { for (int i = 0; i < (bytes); i++) (at)[i] = (char)(me + i); B; char byte = 0; shmem_getmem(&byte, (at) + (bytes) - 1, 1, next); \\
    CHECK(byte == (char)(next + (bytes) - 1)); B; } while (0)
#define OVER ZERO(D, 24); for (int i = 0; i < 24; i++) S[i] = V(i, mine); B
#define ACTIVE int k = log ? (n + 1) / 2 : n, mine = me >> log, in = !log || me % 2 == 0; (void)in; ZERO(D, 24); for (int i = 0; i < 24; i++) S[i] = V(i, mine); B
#define TERM(i, pe) ((T)(((i) + (pe)) % 3 + 1))
#define TERMS for (int i = 0; i < 4; i++) D[i] = (T)0, S[i] = TERM(i, mine)
#define REDUCED(count, combined) for (int i = 0; i < 4; i++) { T so_far = TERM(i, 0); \\
    for (int pe = 1; pe < (count); pe++) { T other = TERM(i, pe); so_far = (T)(combined); } CHECK(D[i] == so_far); }
#define SESSION(start, stop) shmem_ctx_session_config_t config = {8}; (void)config; int *d = (int *)D; ZERO(d, 1); B; \\
    start; shmem_ctx_int_p(ctx, d, 7, pass == 2 ? n - 1 - next : next); stop; shmem_ctx_quiet(ctx); B; CHECK(*d == 7); B
"""
MAIN = """
int main(int argc, char **argv) {
    pass = argc > 1 ? atoi(argv[1]) : 1;
    int level = -1;
    if (pass == 1) shmem_init_thread(SHMEM_THREAD_MULTIPLE, &level); else pshmem_init_thread(SHMEM_THREAD_MULTIPLE, &level);
    me = shmem_my_pe(), n = shmem_n_pes(), next = (me + 1) % n, before = (me + n - 1) % n;
    team = ctx_team = SHMEM_TEAM_WORLD;
    if (pass == 2) shmem_team_split_strided(SHMEM_TEAM_WORLD, n - 1, -1, n, NULL, 0, &team), ctx_team = team;
    mine = shmem_team_my_pe(team), size = shmem_team_n_pes(team);
    if (level != SHMEM_THREAD_MULTIPLE || mine != (pass == 2 ? n - 1 - me : me) || size != n || shmem_team_create_ctx(team, 0, &ctx)) bad("set-up", "wrong");
    char *memory = pass == 1 ? shmem_malloc(4096) : statics;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) cases[i](memory);
    shmem_barrier_all();
    if (pass == 1) shmem_finalize(); else pshmem_finalize();
    return failures != 0;
}
"""


def rows(root, each=1):
    """Each row with its types. With `each` a row has only every `each`-th type, and the next row begins with another."""
    table = json.loads((root / "tables/shmem.json").read_text())
    for at, row in enumerate(table["functions"]):
        kinds = table["sets"][row["types"]].split() if row.get("types") else [""]
        for kind in kinds[at % min(each, len(kinds))::each]:
            yield row, kind, ELEMENTS.get(kind) or (table["types"][kind][0] if kind else "char")


def names(root):
    """The names of all functions, without their profiled forms."""
    for row, kind, _ in rows(root):
        name = row["name"].replace("@", kind)
        yield name
        if row.get("ctx"):
            yield name.replace("shmem_", "shmem_ctx_", 1)


def case(body):
    plain = body.removesuffix("_old")
    for name in body, body.split("::")[1], plain, plain.split("::")[1]:
        if name in CASES:
            return CASES[name]
    raise SystemExit(f"tests/shmem/cases.py has no case for {body}")


def programs(root, number, each):
    """The texts of this many programs. With the argument 1 a program uses the heap, plain names and generics; with 2 statics,
    profiled names, a team and its context."""
    tests = [[] for _ in range(number)]
    for at, (row, kind, element) in enumerate(rows(root, each)):
        if row["body"] in ELSEWHERE:
            continue
        text, name = case(row["body"]), row["name"].replace("@", kind)
        put = f"shmem_{kind}_p" if kind else ""
        forms = [(name, False, 1), ("p" + name, False, 2)]
        if row.get("ctx"):
            whole = name.replace("shmem_", "shmem_ctx_", 1)
            forms += [(whole, True, 1), ("p" + whole, True, 2)]
        if row.get("c11"):
            forms += [(row["c11"], False, 1)] + [(row["c11"], True, 2)] * bool(row.get("ctx"))
        for function, has_ctx, of_pass in forms:
            tests[at % number].append((function, text, element, has_ctx, of_pass, put))
    for some in tests:
        out = [HEAD]
        for at, (function, text, element, has_ctx, of_pass, put) in enumerate(some):
            ctx, rest = ("ctx", "ctx, ") if has_ctx else ("SHMEM_CTX_DEFAULT", "")
            for word, value in {"FILL(s,": "T s[12]; FILL_(s,", "FILL(": "FILL_(", "(C ": f"({rest}", "CTX0": ctx if has_ctx else "", "CTXC ": rest if has_ctx else "", "CTX ": f"{ctx}, "}.items():
                text = text.replace(word, value)
            out.append(f"#define T {element}\n#define F {function}\n#define NAME \"{function}{' with a context' * has_ctx} ({element})\"\n#define P {put}\n"
                       f"#define D ((T *)memory)\n#define S ((T *)(memory + 1024))\n#define Q shmem_ctx_quiet({ctx})\n"
                       f"#define PE(pe) {'(pass == 2 ? n - 1 - (pe) : (pe))' if has_ctx else '(pe)'}\n"
                       f"static void case{at}(char *memory) {{ (void)memory; if (pass != {of_pass}) return; {text}; }}\n#undef T\n#undef F\n#undef NAME\n#undef P\n#undef D\n#undef S\n#undef Q\n#undef PE\n")
        out.append("static void (*const cases[])(char *) = {" + ", ".join(f"case{at}" for at in range(len(some))) + "};" + MAIN)
        yield "".join(out)
