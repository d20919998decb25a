// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/test/registrytest"
	"github.com/caisson-os/caisson/test/require"
)

// withoutDryRun are verbs that write to a registry, or take a key, and need no preview of
// their own.
var withoutDryRun = map[string]string{
	"caisson approve": "it prints an object for kubectl, and writes nothing",
	"caisson build":   "plan says which layers are to be built; a layer is for no node before it is published",
	"caisson diff":    "it reads; its key is a public one",
	"caisson inspect": "it reads; its key is a public one",
	"caisson explain": "its key is that of a setting",
	"caisson history": "its key is that of a setting",

	"caisson rescue":        "a node obeys it once, for the code that it shows; there is nothing to look at before",
	"caisson keys rehearse": "it writes nothing",
	"caisson verify":        "it reads; its key is a public one",
}

// writers are the verbs that write to a registry and sign nothing.
var writers = []string{"caisson prune", "caisson copy", "caisson build"}

// TestVerbsThatWriteHaveADryRun: whatever publishes shows first what it would do.
func TestVerbsThatWriteHaveADryRun(t *testing.T) {
	seen := 0
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.Flags().Lookup("key") == nil && !slices.Contains(writers, c.CommandPath()) {
			return
		}
		why, excused := withoutDryRun[c.CommandPath()]
		if has := c.Flags().Lookup("dry-run") != nil; has == excused {
			t.Errorf("%s: has --dry-run: %t, and is excused: %q", c.CommandPath(), has, why)
		}
		seen++
	}
	walk(newApp(io.Discard, io.Discard).root())
	if seen < 20 {
		t.Errorf("only %d verbs were looked at", seen)
	}
}

// counting is a registry whose requests to write are noted.
type counting struct {
	mu     sync.Mutex
	writes []string
}

func (c *counting) proxy(t *testing.T, to string) (ref string) {
	t.Helper()
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: to})
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			c.mu.Lock()
			c.writes = append(c.writes, req.Method+" "+req.URL.Path)
			c.mu.Unlock()
		}
		forward.ServeHTTP(w, req)
	}))
	t.Cleanup(service.Close)
	return strings.TrimPrefix(service.URL, "http://")
}

func (c *counting) taken() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.writes
	c.writes = nil
	return list
}

// TestADryRunWritesNothing: no verb sends a request that writes, changes the publisher's
// memory, or asks for a key, when it is to say what it would do; and each says it.
func TestADryRunWritesNothing(t *testing.T) {
	require.Slow(t)
	s := newShelf(t)
	t.Chdir(t.TempDir())
	caisson := func(args ...string) (string, error) {
		var out, talk bytes.Buffer
		root := newApp(&out, &talk).root()
		root.SetArgs(args)
		err := root.ExecuteContext(t.Context())
		return out.String() + talk.String(), err
	}
	must := func(args ...string) {
		t.Helper()
		if out, err := caisson(args...); err != nil {
			t.Fatalf("caisson %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	must("keys", "generate", filepath.Join("keys", "operator"))
	if err := os.WriteFile("keys/release.pub", sign.VerifierOf(s.release).PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	site := func(value string) {
		text := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: test}\nlayer: {base: {debian: {suite: trixie}}}\ntrust: {keys: {operator: keys/operator.pub, release: keys/release.pub}}\n" +
			"nodes: [{name: a}, {name: b}, {name: c}, {name: d}]\nconf: {sysctl: {vm.swappiness: " + value + "}}\n---\n" +
			"apiVersion: caisson.dev/v1alpha1\nkind: NodeSet\nmetadata: {name: few}\nspec: {match: {hosts: [a]}}\n---\napiVersion: caisson.dev/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {nodes: [few], waves: [{hosts: [a]}], soak: 1m, deadline: 1h}\n"
		if err := os.WriteFile("site.yaml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	site("1")
	one := s.put("1", "2026-01-01T00:00:00Z", map[string]string{"a": "x"}, "bash=5")
	two := s.put("2", "2026-01-02T00:00:00Z", map[string]string{"a": "y"}, "bash=6")
	c := &counting{}
	ref := c.proxy(t, registrytest.Distribution(t)) + "/test"
	must("copy", s.ref+"@1", ref, "--unverified")
	must("copy", s.ref+"@2", ref, "--unverified")
	key := []string{"--key", "keys/operator.key"}
	site("0")
	must(append([]string{"publish", "site.yaml", "--to", ref, "--layer", one, "--new-fleet"}, key...)...)
	site("1")
	must(append([]string{"publish", "site.yaml", "--to", ref, "--layer", two}, key...)...)
	must(append([]string{"freeze", ref, "--site", "site.yaml", "--node", "b", "--reason", "wait"}, key...)...)
	must(append([]string{"pause", ref, "--site", "site.yaml", "--node", "c", "--reason", "wait"}, key...)...)
	reports := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/v1/summary" {
			_, _ = io.WriteString(w, `{"fleet": "test"}`) // the verb says what came
		} // and nobody reported
	}))
	t.Cleanup(reports.Close)

	tried := map[string]bool{"loader": true} // the layers of this test have no kernel; its script tries it
	dry := func(verb string, want string, args ...string) {
		t.Helper()
		args = append(strings.Fields(verb), args...)
		was, err := os.ReadFile("caisson.memory")
		if err != nil {
			t.Fatal(err)
		}
		c.taken()
		tried[verb] = true
		out, err := caisson(append(args, "--dry-run")...)
		if err != nil && cli.Code(err) != cli.ExitDrift || !strings.Contains(out, want) {
			t.Errorf("%q: %v, want %q in\n%s", args, err, want, out)
		}
		if writes := c.taken(); len(writes) > 0 {
			t.Errorf("%q writes: %q", args, writes)
		}
		if is, err := os.ReadFile("caisson.memory"); err != nil || !bytes.Equal(is, was) {
			t.Errorf("%q changes what is remembered: %v", args, err)
		}
	}
	whose := []string{"--site", "site.yaml"}
	on := func(more ...string) []string { return append(append([]string{ref}, whose...), more...) }
	site("2")
	// Nobody is asked for a key: there is none.
	if err := os.Rename("keys/operator.key", "away.key"); err != nil {
		t.Fatal(err)
	}
	dry("publish", "would be at generation 5: 2 published", "site.yaml", "--to", ref, "--layer", two)
	dry("rollback", "a\tgeneration 5", on("--node", "a", "--reason", "x")...)
	dry("pin", "a\tgeneration 5", on("--node", "a", "--reason", "x", "--layer", one)...)
	dry("freeze", "a\theld", on("--node", "a", "--reason", "x")...)
	dry("forward", "b\tnot held any more", on("--node", "b")...)
	dry("pause", "a\tgeneration 5", on("--node", "a", "--reason", "x")...)
	dry("resume", "c\tgeneration 5", on("--node", "c")...)
	dry("fleet replace", "would be        {macs: [\"52:54:00:00:00:01\"]}", "site.yaml", "a", "--mac", "52:54:00:00:00:01")
	dry("retire", "d\tleft", ref, "--node", "d", "--trust", "keys/operator.pub", "--remember", "caisson.memory")
	dry("refresh", "4 unchanged", on()...)
	dry("refresh", "would be at generation 4", on("--reject", one)...)
	dry("prune", "would remove", on("--keep", "1", "--generations", "1")...)
	dry("copy", "would be copied", ref, c.proxy(t, registrytest.Distribution(t))+"/copy", "--site", "site.yaml")
	dry("rollout start", "wave 1", "r", "site.yaml", "--to", ref, "--layer", two)
	if err := os.Rename("away.key", "keys/operator.key"); err != nil {
		t.Fatal(err)
	}
	must("rollout", "start", "r", "site.yaml", "--to", ref, "--layer", two)
	dry("rollout run", "dry run: ", "r", "site.yaml", "--to", ref, "--at", reports.URL)
	dry("rollout pause", "would be at generation 6", ref, "r", "--site", "site.yaml")
	dry("rollout abort", "would be at generation 6", ref, "r", "--site", "site.yaml")
	dry("rollout undo", "would be at generation 6", ref, "r", "--site", "site.yaml", "--reason", "x")
	must("rollout", "pause", ref, "r", "--site", "site.yaml")
	dry("rollout resume", "would be at generation 7", ref, "r", "--site", "site.yaml")
	chained := func(operator string) {
		text, err := os.ReadFile("site.yaml")
		trust := "keys: {root: keys/root.pub, operator: keys/" + operator + ".pub"
		if err = errors.Join(err, os.WriteFile("chained.yaml", bytes.Replace(text, []byte("keys: {operator: keys/operator.pub"), []byte(trust), 1), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	must("keys", "generate", filepath.Join("keys", "root"))
	must("keys", "generate", filepath.Join("keys", "operator2"))
	chained("operator")
	root := []string{"chained.yaml", "--to", ref, "--root-key", "keys/root.key"}
	must(append([]string{"keys", "rotate"}, root...)...)
	chained("operator2")
	dry("keys rotate", "would be: fleet test has version 2", append(root, "--key", "keys/operator2.key", "--lose", "a", "--lose", "b", "--lose", "c", "--lose", "d")...)
	dry("keys revoke", "would be: fleet test has version 2", append(root, "--reason", "x", "--key", "keys/operator2.key", "--lose", "a", "--lose", "b", "--lose", "c", "--lose", "d")...)
	// What was said came to nothing.
	if out, err := caisson("history", ref, "--site", "site.yaml"); err != nil || strings.Count(out, "\n") != 6 {
		t.Errorf("%v\n%s", err, out)
	}
	// Without a site or a key nobody is trusted.
	if _, err := caisson("freeze", ref, "--all", "--reason", "x", "--dry-run"); cli.Code(err) != cli.ExitUsage {
		t.Errorf("it trusts nobody: %v", err)
	}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if verb := strings.TrimPrefix(c.CommandPath(), "caisson "); c.Flags().Lookup("dry-run") != nil && !tried[verb] {
			t.Errorf("%s --dry-run was not tried", verb)
		}
	}
	walk(newApp(io.Discard, io.Discard).root())
}

// What a dry run finds of layers that are newer than what was remembered stays unknown to
// who publishes.
func TestADryRunRemembersNoLayer(t *testing.T) {
	s := newShelf(t)
	t.Chdir(t.TempDir())
	must := func(args ...string) {
		t.Helper()
		if out, err := s.run(args...); err != nil && cli.Code(err) != cli.ExitDrift {
			t.Fatalf("caisson %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	must("keys", "generate", filepath.Join("keys", "operator"))
	text := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: test}\nlayer: {base: {debian: {suite: trixie}}}\ntrust: {keys: {operator: keys/operator.pub, release: keys/release.pub}}\n" +
		"nodes: [{name: a}]\n---\napiVersion: caisson.dev/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {waves: [{hosts: [a]}]}\n"
	for name, data := range map[string][]byte{"keys/release.pub": sign.VerifierOf(s.release).PEM(), "site.yaml": []byte(text)} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	of, found := site.Parse(os.DirFS("."), "site.yaml")
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	s.recipe = "sha256:" + site.RecipeID(of.DefaultRecipe())
	s.put("1", "2026-01-01T00:00:00Z", map[string]string{"a": "x"}, "bash=5")
	must("publish", "site.yaml", "--to", s.ref, "--new-fleet", "--key", "keys/operator.key")
	for _, verb := range [][]string{{"publish"}, {"rollout", "start", "r"}} {
		s.put("2-"+verb[0], "2026-01-02T00:00:00Z", map[string]string{"a": verb[0]}, "bash=6")
		was, err := os.ReadFile("caisson.memory")
		if err != nil {
			t.Fatal(err)
		}
		must(append(verb, "site.yaml", "--to", s.ref, "--dry-run")...)
		if is, err := os.ReadFile("caisson.memory"); err != nil || !bytes.Equal(was, is) {
			t.Errorf("%q changes what is remembered: %v", verb, err)
		}
	}
}
