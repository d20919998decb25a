// SPDX-License-Identifier: Apache-2.0

package deptest

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden file")

const (
	noProcess = "the contract is pure: bytes in, values out"
	noYAML    = "the node gets literals; YAML is read where it is written"
	noHelpers = "it runs credential helpers, and the agent runs nothing it was not told to"
)

// TestRules holds the package table of docs/design.md.
func TestRules(t *testing.T) {
	for _, r := range []Rule{
		{Packages: "spec", Only: []string{}, Stdlib: true, Banned: map[string]string{
			"os/exec": noProcess, "net": noProcess, "net/http": noProcess, "golang.org/x/sys/unix": noProcess, "gopkg.in/yaml.v3": noYAML, "go.yaml.in/yaml/v3": noYAML}},
		{Packages: "spec/site/...", Only: []string{"spec"}, Banned: map[string]string{
			"os/exec": noProcess, "net/http": noProcess}}, // net itself comes with crypto/x509, which reads the site's CAs
		{Packages: "spec/site/report", Only: []string{}, Stdlib: true},
		{Packages: "spec/site/tree", Only: []string{"spec/site/report"}},
		{Packages: "spec/site/shape", Only: []string{"spec/site/report", "spec/site/tree"}},
		{Packages: "spec/site/credential", Only: []string{}, Stdlib: true},
		{Packages: "spec/site/module", Only: []string{"spec", "spec/site/report", "spec/site/tree", "spec/site/shape", "spec/site/machine", "spec/site/credential"}},
		{Packages: "layers", Only: []string{"internal/durable", "internal/private"}},
		{Packages: "layers/image/...", Only: []string{"layers", "internal/durable", "internal/private"}},
		{Packages: "oci", Only: []string{"oci/..."}, Stdlib: true},
		{Packages: "oci/sign/...", Only: []string{"oci/..."}, Banned: map[string]string{
			"github.com/google/go-containerregistry/": "the agent links it"}},
		{Packages: "oci/registry/...", Only: []string{"oci/...", "internal/durable"}},
		{Packages: "builder/...", Only: []string{"spec", "layers", "layers/image/...", "systemd", "internal/..."}, Banned: map[string]string{
			Module + "/bootagent/": "the builder copies the agent's binary and never links it",
			Module + "/oci":        "the builder works offline; registries are wired in cmd"}},
		{Packages: "bootagent/...", Only: []string{"spec", "layers", "oci", "oci/sign", "oci/refusal", "oci/internal/...", "internal/..."}, Banned: map[string]string{
			Module + "/builder/":                               "the node has no build tools",
			Module + "/spec/site":                              noYAML,
			Module + "/spec/site/":                             noYAML,
			"gopkg.in/yaml.v3":                                 noYAML,
			"go.yaml.in/yaml/v3":                               noYAML,
			"github.com/spf13/cobra":                           "a command line library with completion and pages is for people, not for init",
			"github.com/google/go-containerregistry/pkg/authn": noHelpers,
			"github.com/docker/":                               noHelpers}},
		{Packages: "internal/cli", Only: []string{}, Stdlib: true},
		{Packages: "internal/paths", Only: []string{}, Stdlib: true},
		{Packages: "internal/durable", Only: []string{}, Stdlib: true},
		{Packages: "internal/private", Only: []string{}, Stdlib: true},
	} {
		t.Run(strings.TrimSuffix(r.Packages, "/..."), func(t *testing.T) { Check(t, r) })
	}
}

// TestAgentClosure holds the agent's list of foreign packages to the golden
// file, so that each addition is seen in review. Rewrite it with -update.
func TestAgentClosure(t *testing.T) {
	golden := "../../cmd/caisson-agent/deps.txt"
	out, err := Go("list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./cmd/caisson-agent")
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(out)
	slices.Sort(deps)
	got := strings.Join(deps, "\n") + "\n"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the agent's closure changed; look at the difference, then run this test with -update\ngot:\n%s", got)
	}
	for _, dep := range deps {
		for banned, why := range map[string]string{
			"gopkg.in/yaml": noYAML, "github.com/spf13/": "for people", "github.com/google/go-containerregistry": noHelpers,
			"github.com/sigstore/": "seventy modules to check one signature", "github.com/diskfs/": "the node writes no images", "github.com/theupdateframework/": "see docs/rationale.md",
			Module + "/builder": "no build tools on nodes"} {
			if strings.HasPrefix(dep, banned) {
				t.Errorf("the agent links %s: %s", dep, why)
			}
		}
	}
}

// TestCheckSeesWhatItForbids keeps the test of rules from passing blindly.
func TestCheckSeesWhatItForbids(t *testing.T) {
	if len(List(t, "./spec")) != 1 || len(List(t, "./bootagent/...")) < 10 {
		t.Error("go list no longer lists what the rules are about")
	}
	if allowed(Rule{Only: []string{"oci/..."}}, nil, "ocify") || !allowed(Rule{Only: []string{"oci/..."}}, nil, "oci/sign") || allowed(Rule{Only: []string{}}, nil, "spec") {
		t.Error("the patterns of Only match the wrong packages")
	}
}
