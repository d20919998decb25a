// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/invopop/jsonschema"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/attest"
	"github.com/caisson-os/caisson/fleet/content"
	"github.com/caisson-os/caisson/fleet/history"
	"github.com/caisson-os/caisson/fleet/mirror"
	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/fleet/prune"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/replace"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/seal"
	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/fleet/unknown"
	"github.com/caisson-os/caisson/fleet/verify"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/media"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/sandbox"
	"github.com/caisson-os/caisson/sandbox/culprit"
	"github.com/caisson-os/caisson/sandbox/rehearsal"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/calendar"
	"github.com/caisson-os/caisson/spec/site/cluster"
	"github.com/caisson-os/caisson/spec/site/convert/coverage"
	"github.com/caisson-os/caisson/spec/site/explain"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// results are what each verb prints with -o json. Each has a schema in
// docs/schema/output, made from the type.
var results = map[string]any{
	"init":                written{},
	"validate":            validation{},
	"explain":             explain.Explanation{},
	"explain-against":     explain.Differences{}, // explain --against
	"explain-key":         explain.Uses{},
	"explain-where":       []string{},
	"windows":             calendar.Openings{},
	"operations":          spec.Maintenance{},
	"plan":                plan.Plan{},
	"services update":     servicesUpdated{},
	"secrets accept":      seal.List{},
	"secrets list":        seal.List{},
	"secrets forget":      seal.List{},
	"services freeze":     servicesUpdated{},
	"services rollback":   servicesUpdated{},
	"services forward":    servicesUpdated{},
	"services list":       []content.Listed{},
	"services diff":       []content.Standing{},
	"build":               release.Pushed{},
	"lock":                locked{},
	"inspect":             []release.Inspected{},
	"inspect-node":        published.Inspected{}, // inspect --node
	"diff-fleet":          plan.Plan{},           // diff REF GEN GEN
	"history":             []history.Entry{},
	"history-generation":  history.Detail{}, // history REF GEN
	"rollout start":       rollout.State{},
	"rollout status":      server.Rollouts{},
	"rollout run":         server.Rollouts{},
	"rollout pause":       publish.Result{},
	"rollout resume":      publish.Result{},
	"rollout abort":       publish.Result{},
	"rollout undo":        publish.Result{},
	"diff":                []release.Difference{},
	"prune":               prune.Pruned{},
	"netboot":             netbooted{},
	"bootstrap":           bootstrapped{},
	"image":               imaged{},
	"loader":              publishedLoader{},
	"try":                 sandbox.Trial{},
	"bisect":              culprit.Result{},
	"rehearse":            rehearsal.Answer{},
	"publish":             publish.Result{},
	"approve":             cluster.Approval{},
	"pin":                 publish.Result{},
	"freeze":              publish.Result{},
	"rollback":            publish.Result{},
	"forward":             publish.Result{},
	"pause":               publish.Result{},
	"resume":              publish.Result{},
	"retire":              publish.Result{},
	"refresh":             publish.Result{},
	"verify":              verify.Report{},
	"verify-quote":        attest.Verdict{},
	"keys generate":       keys.Info{},
	"keys show":           keys.Info{},
	"keys import":         keys.Info{},
	"keys plan":           policy.KeysPlan{},
	"keys rehearse":       policy.KeysChange{},
	"keys rotate":         policy.KeysChange{},
	"keys revoke":         policy.KeysChange{},
	"keys pull":           policy.KeysVersions{},
	"keys enroll-image":   media.Enrolled{},
	"keys revoke-loader":  media.RevokedLoaders{},
	"rescue":              rescued{},
	"login":               loggedIn{},
	"logout":              loggedIn{},
	"import":              coverage.Result{},
	"man":                 written{},
	"version":             map[string]string{},
	"copy":                mirror.Result{},
	"serve":               map[string]string{},
	"fleet serve":         map[string]string{},
	"fleet relay":         map[string]string{},
	"fleet status":        fleetStatus{},
	"fleet diff":          fleetDiff{},
	"fleet accept":        map[string]string{},
	"fleet replace":       replace.Result{},
	"fleet slots":         server.Slots{},
	"fleet slots release": map[string]string{},
	"fleet audit":         audited{},
	"fleet token":         map[string]string{},
	"fleet backup":        map[string]string{},
	"unknown":             []unknown.Row{},
	"error":               cli.Failure{}, // of every verb, on standard error

	// What the agent prints is made of the documents that both sides know.
	"agent status": spec.Status{}, // of apply and sync, too
	"agent report": struct {
		To      string       `json:"to,omitempty"`
		Key     string       `json:"key,omitempty"`
		Waiting int          `json:"waiting"`
		Report  *spec.Report `json:"report"`
	}{},
	"agent status --trace": spec.Trace{},
	"agent why":            spec.Why{},
	"agent plan": struct {
		Drift []spec.Drift `json:"drift"`
	}{},
}

// noResult names verbs without a result: they run until they are stopped.
var noResult = []string{"netboot serve", "schema"}

// verbsOf lists what can be run, as it is typed after the program's name.
func verbsOf(c *cobra.Command, prefix string) []string {
	var out []string
	for _, sub := range c.Commands() {
		name := strings.TrimSpace(prefix + " " + sub.Name())
		if name == "help" || strings.HasPrefix(name, "completion") || strings.HasPrefix(sub.Name(), "__") {
			continue
		}
		if sub.HasSubCommands() {
			out = append(out, verbsOf(sub, name)...)
		}
		if !sub.HasSubCommands() || sub.Args != nil && sub.Args(sub, []string{"x"}) == nil {
			out = append(out, name)
		}
	}
	return out
}

func schemaFile(verb string) string {
	return filepath.Join("../../docs/schema/output", strings.ReplaceAll(verb, " ", "-")+".schema.json")
}

// TestOutputSchemas holds docs/schema/output and docs/json.md to the types.
// CAISSON_UPDATE=1 rewrites the files.
func TestOutputSchemas(t *testing.T) {
	for _, verb := range verbsOf(newApp(io.Discard, io.Discard).root(), "") {
		if results[verb] == nil && !slices.Contains(noResult, verb) {
			t.Errorf("caisson %s has no schema of what it prints with -o json", verb)
		}
	}
	known := map[string]bool{}
	for verb, v := range results {
		named := map[string]reflect.Type{}
		r := jsonschema.Reflector{ExpandedStruct: true, Anonymous: true, Namer: func(t reflect.Type) string {
			name := t.Name()
			if of := named[name]; name != "" && of != nil && of != t { // two packages have the name
				name = path.Base(t.PkgPath()) + name
			}
			named[name] = t
			return name
		}}
		s := r.Reflect(v)
		s.Title = "caisson " + verb + " -o json"
		if agents, ok := strings.CutPrefix(verb, "agent "); ok {
			s.Title = "caisson-agent " + agents + " -o json"
		}
		if verb == "error" {
			s.Title = "an error of any verb with -o json, on standard error"
		}
		got, err := json.MarshalIndent(s, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, '\n')
		name := schemaFile(verb)
		known[filepath.Base(name)] = true
		if os.Getenv("CAISSON_UPDATE") != "" {
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(name); err != nil || !bytes.Equal(want, got) {
			t.Errorf("%s is not what the type says (%v); run: CAISSON_UPDATE=1 go test ./cmd/caisson -run TestOutputSchemas", name, err)
		}
	}
	files, err := filepath.Glob(schemaFile("*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if !known[filepath.Base(name)] {
			t.Errorf("%s is of no verb", name)
		}
	}
	checkOutputPage(t)
}

// sometimesAbsent are lists of results that are not always there, and why.
var sometimesAbsent = map[string]string{
	"fleet status: nodes":              "it prints the fleet, or nodes, or one node",
	"keys revoke-loader: certificates": "with those by which loaders are known",
	"services diff: reported":          "the fleet's service is asked only where it is named",
	"diff: files":                      "with --files",
	"diff-fleet: marks":                "where a generation does not count", "plan: marks": "of generations that are compared",
	"operations: realtime":        "a part of an overlay, as nodes have it",
	"agent status: checks":        "of a change that is on trial",
	"agent status: operations":    "a part of an overlay",
	"agent status: services":      "a part of an overlay",
	"agent status: foreign":       "of a root with an upper layer",
	"agent status: leftOut":       "reports carry it: where an overlay has keys of a later release",
	"agent status: protected":     "where a kernel protects some",
	"agent status: refused":       "where a kernel protects some",
	"agent status --trace: boot":  "of a node that caisson booted",
	"agent status --trace: first": "until the first run is over", "agent status --trace: last": "until the first run is over",
}

// TestListsAreThere: who reads a result counts what is in a list, and needs no case for
// one that is empty.
func TestListsAreThere(t *testing.T) {
	var left []string
	for verb, v := range results {
		kind := reflect.TypeOf(v)
		for kind.Kind() == reflect.Slice {
			kind = kind.Elem()
		}
		if kind.Kind() != reflect.Struct {
			continue
		}
		for _, f := range reflect.VisibleFields(kind) {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Type.Kind() != reflect.Slice || name == "-" || !strings.Contains(options, "omit") {
				continue
			}
			if name = verb + ": " + name; sometimesAbsent[name] == "" {
				t.Errorf("%s is absent where it is empty", name)
			}
			left = append(left, name)
		}
	}
	for name := range sometimesAbsent {
		if !slices.Contains(left, name) {
			t.Errorf("%s is always there", name)
		}
	}
}

// fits is a command of scripts: "fits VERB" holds what was printed last to the
// verb's schema, "fits error" what was printed to standard error.
func fits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: fits VERB")
	}
	verb := strings.Join(args, " ")
	out := "stdout"
	if verb == "error" {
		out = "stderr"
	}
	program, err := fitsProgram()
	ts.Check(err)
	cmd := exec.Command(program, filepath.Join(schemaRoot, schemaFile(verb)))
	cmd.Stdin = strings.NewReader(ts.ReadFile(out))
	if said, err := cmd.CombinedOutput(); err != nil {
		ts.Fatalf("fits %s: %v: %s", verb, err, said)
	}
}

// fitsProgram is testdata/fits, compiled once.
var fitsProgram = sync.OnceValues(func() (string, error) {
	program := filepath.Join(compiled, "fits")
	cmd := exec.Command("go", "build", "-o", program, "./testdata/fits")
	cmd.Dir = schemaRoot
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./testdata/fits: %w: %s", err, said)
	}
	return program, nil
})

// schemaRoot is this directory: scripts run in others.
var schemaRoot, _ = os.Getwd() // it is the directory of the test
