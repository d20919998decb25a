// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// ansible runs a program of Ansible on the fleet at url by the example's plugin.
func ansible(t *testing.T, url, more, program string, args ...string) (out, said string) {
	t.Helper()
	require.Tool(t, program)
	sample, err := os.ReadFile("../../examples/ansible/caisson.yaml")
	if err != nil {
		t.Fatal(err)
	}
	plugins, err := filepath.Abs("../../examples/ansible/inventory_plugins")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "caisson.yaml")
	if err := os.WriteFile(file, append(sample, "url: "+url+"\n"+more...), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), program, append([]string{"-i", file}, args...)...)
	c.Env = append(os.Environ(), "HOME="+dir, "ANSIBLE_INVENTORY_PLUGINS="+plugins, "ANSIBLE_INVENTORY_ENABLED=caisson",
		"ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED=1", "http_proxy=http://127.0.0.1:1")
	var stderr strings.Builder
	c.Stderr = &stderr
	text, err := c.Output()
	if err != nil {
		return "", string(text) + stderr.String()
	}
	return string(text), stderr.String()
}

// inventory lists the hosts of a fleet with their variables, and the names of groups.
func inventory(t *testing.T, url, more string) (hosts map[string]map[string]any, groups map[string]any, said string) {
	t.Helper()
	out, said := ansible(t, url, more, "ansible-inventory", "--list")
	if out == "" {
		return nil, nil, said
	}
	var listed struct {
		Meta struct {
			Hosts map[string]map[string]any `json:"hostvars"`
		} `json:"_meta"`
	}
	if err := errors.Join(json.Unmarshal([]byte(out), &listed), json.Unmarshal([]byte(out), &groups)); err != nil {
		t.Fatal(err)
	}
	return listed.Meta.Hosts, groups, said
}

// unsafe is text that Ansible does not evaluate, as it lists it.
func unsafe(text string) map[string]any { return map[string]any{"__ansible_unsafe": text} }

// The plugin lists nodes with labels and states. A template that a node reports is text: a node
// must not run anything on the machine of who operates it.
func TestAnsibleInventory(t *testing.T) {
	s := newSite(t, rowsOf("n1", "n2", "n3"), true)
	s.knows(written)
	const evil = "{{ lookup('pipe', 'echo ran') }}"
	status, text := s.ask("POST", "/v1/report", sealed(s, newKey(s), "n2", 1, func(r *spec.Report) {
		r.Axes.Health = spec.Axis{State: "degraded", Detail: evil}
	}), "Authorization", s.bearer(people.Reporter))
	if status != 204 {
		t.Fatal(status, text)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(s.tokens[people.Reader]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hosts, groups, said := inventory(t, s.url, "token_file: "+token+"\n")
	labels := map[string]any{"rack": unsafe("r1"), "role": unsafe("<b>a&b</b>")}
	if len(hosts) != 3 || !reflect.DeepEqual(hosts["n1"]["caisson_condition"], unsafe("never")) || !reflect.DeepEqual(hosts["n1"]["caisson_labels"], labels) {
		t.Fatalf("%v\n%s", hosts, said)
	}
	out, said := ansible(t, s.url, "token_file: "+token+"\n", "ansible", "n2", "-m", "debug", "-a", "msg={{ caisson_why }}")
	if !strings.Contains(out, `lookup('pipe', 'echo ran')`) {
		t.Errorf("what n2 reports is shown as %s%s", out, said)
	}
	for _, want := range []string{"condition_never", "condition_degraded", "_rack_r1"} {
		if groups[want] == nil {
			t.Errorf("no group %s in %v", want, groups)
		}
	}
	if hosts, _, _ := inventory(t, s.url, "token_file: "+token+"\nquery: {label: [rack=r2]}\n"); len(hosts) != 1 || hosts["n3"] == nil {
		t.Errorf("by a label: %v", hosts)
	}
	if err := os.Chmod(token, 0o644); err != nil {
		t.Fatal(err)
	}
	elsewhere := httptest.NewServer(http.RedirectHandler(s.url+"/v1/nodes", http.StatusFound))
	defer elsewhere.Close()
	for _, c := range []struct{ name, url, more, want string }{
		{"no token", s.url, "", "401"},
		{"a token that others can read", s.url, "token_file: " + token + "\n", "others can read"},
		{"a token without TLS", "http://192.0.2.1:8090", "token_file: " + token + "\n", "without TLS"},
		{"a redirect", elsewhere.URL, "", "302"},
		{"a wrong condition", s.url, "query: {conditoin: trouble}\n", "did you mean"},
	} {
		if c.name == "a wrong condition" {
			if err := os.Chmod(token, 0o600); err != nil {
				t.Fatal(err)
			}
			c.more += "token_file: " + token + "\n"
		}
		if hosts, _, said := inventory(t, c.url, c.more); hosts != nil || !strings.Contains(said, c.want) {
			t.Errorf("%s: %v, %s", c.name, hosts, said)
		}
	}
}

// Answers that no service gives end the inventory: a part of the fleet is not all of it.
func TestAnsibleInventoryRefuses(t *testing.T) {
	for want, answer := range map[string]string{
		"not a list": `{"nodes": null, "all": 1}`,
		"valid name": `{"nodes": [{"name": "a b"}], "all": 1}`,
		"changed":    `{"nodes": [], "all": 2}`,
		"Expecting":  `{`,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) }))
		hosts, _, said := inventory(t, server.URL, "")
		server.Close()
		if hosts != nil || !strings.Contains(said, want) {
			t.Errorf("%s: %v, %s", answer, hosts, said)
		}
	}
}
