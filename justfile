# List the recipes.
default:
    @just --list --unsorted

# Everything that CI checks.
check:
    .ci/run

# Everything that takes too long for each change: `just deep`, `just deep chaos-redis pairs`, or
# `just deep --scale 0.1 soak`; `just deep --list` prints the names.
deep *arguments:
    .ci/deep {{arguments}}

# Repeat the tests while other processes keep the machine busy.
stress times="20":
    .ci/stress {{times}}

# Check the words of comments and documents, and their spelling.
prose:
    .ci/prose
    .ci/typos

# Check the files of `examples/deploy`.
deploy:
    .ci/deploy

# Run clippy on all targets; warnings are errors. `--all-targets` does not
# include `redis`, `restate`, `foreign`, `conformance` and `browser`, since `cargo test` does not.
lint:
    cargo clippy --workspace --all-targets --all-features -- -D warnings
    cargo clippy --all-features --test redis --test restate --test foreign --test conformance --test browser -- -D warnings
    cargo clippy --no-default-features --lib --tests -- -D warnings

# Run unit, integration and doc tests.
test:
    cargo test --all-features

# Build the docs.
doc:
    cargo doc --no-deps --all-features

# Check the contents of the package.
package:
    .ci/package

# Check the docs for broken links, and that the public interface is that of `.ci/public-api.txt`;
# `--update` writes it.
public-api *ARGUMENTS:
    .ci/public-api {{ARGUMENTS}}

# Check licenses, versions and sources of the dependencies.
deny:
    .ci/deny

# Check the dependencies for known vulnerabilities; downloads the database of RustSec from GitHub.
advisories:
    .ci/deny advisories

# Check the package and the tests with sets of features.
features: package
    .ci/features

# Run the examples that end by themselves.
examples:
    cargo run --example search_all
    cargo run --example own_rule
    cargo run --example pipeline
    cargo run --example workflow
    cargo run --example approval
    cargo run --features normalize --example agent_loop
    cargo run --features opentelemetry --example telemetry

# Test tasks that Restate executes; installs its server from npm.
test-restate:
    cargo test --all-features --test restate

# Test replicas with Redis; needs `redis-server`.
shared:
    cargo test --all-features --test redis

# Test with other servers and clients; needs Node, npm, Python and nginx.
foreign:
    tests/foreign/install.sh
    cargo test --all-features --test foreign
    cargo build --all-features --bin mcp-composite
    cargo run --all-features --example replicas

# Run the official conformance suite; needs npm.
conformance:
    tests/conformance/install.sh
    cargo test --all-features --test conformance

# Test the page of the program in Chromium; needs Node and npm.
browser:
    tests/browser/install.sh
    cargo test --all-features --test browser

# Composites over backends that fail: a minute, or `just soak 20 release 2000` for twenty
# with two thousand callers.
soak minutes="1" profile="dev" callers="300":
    cargo build --profile {{profile}} --all-features --example misbehaving
    cargo run --profile {{profile}} --all-features --example soak -- --minutes {{minutes}} --callers {{callers}}

# Stored runs while replicas, the store and their connections fail: a minute, or `just chaos 10000
# release restate`; needs `redis-server` or npm.
chaos runs="200" profile="dev" store="redis":
    cargo build --profile {{profile}} --all-features --bin mcp-composite
    tests/chaos/run.py --program target/{{ if profile == "dev" { "debug" } else { profile } }}/mcp-composite --runs {{runs}} --store {{store}}

# Hostile peers among good ones: a minute, or `just hostile 20` for twenty. In a debug build
# the latencies would be those of unoptimized parsers.
hostile minutes="1":
    cargo build --release --all-features --example misbehaving
    cargo run --release --all-features --example hostile_peers -- --minutes {{minutes}}

# Fuzz a target for some minutes, `just fuzz config 10`; needs nightly and `cargo-fuzz`.
fuzz target minutes="10":
    tests/fuzz/run {{target}} {{minutes}}

# Change the code one thing at a time and see whether a test fails; takes hours, and needs
# `cargo-mutants`. `just mutants -f src/layers/filter.rs` for one file.
mutants *arguments:
    cargo mutants {{arguments}}

# Time the fan-out; `just bench fan_out/8` for one group.
bench *filter:
    cargo bench -p benches --bench fan_out -- {{filter}}

# Time steps; `just bench-engine chain` for one group.
bench-engine *filter:
    cargo bench -p benches --bench engine -- {{filter}}

# Time budgets; `just bench-budget charged` for one group.
bench-budget *filter:
    cargo bench -p benches --bench budget -- {{filter}}

# Time the layers; `just bench-stack empty` for one group.
bench-stack *filter:
    cargo bench -p benches --bench stack -- {{filter}}

# Time the states of runs that wait for a person.
bench-store *filter:
    cargo bench -p benches --bench store -- {{filter}}

# Time remote servers, and measure the gateway at rest.
bench-remote *filter:
    cargo bench -p benches --all-features --bench remote -- {{filter}}

# Time a call over HTTP through a gateway beside a direct one.
bench-gateway *filter:
    cargo bench -p benches --all-features --bench gateway -- {{filter}}

# Time the same fan-outs beside mcp-proxy.
peers *filter:
    cargo bench --manifest-path benches/peers/Cargo.toml -- {{filter}}

# Compare the instructions of fan-outs with `benches/instructions/baseline.json`.
instructions *update:
    cargo bench --profile instructions -p instructions -- {{update}}

# Format, and let clippy fix what it can.
fix:
    cargo fmt
    cargo clippy --fix --allow-dirty --all-targets --all-features
