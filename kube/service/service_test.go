// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/view"
)

// TestRealService: what 'caisson fleet serve' answers is what this client reads, and each token
// may what its role says.
func TestRealService(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "caisson")
	build := exec.Command("go", "build", "-o", program, "./cmd/caisson")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	caisson := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HOME="+dir)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("caisson %s: %v\n%s", strings.Join(args, " "), err, err.(*exec.ExitError).Stderr)
		}
		return string(out)
	}
	if err := os.WriteFile(filepath.Join(dir, "site.yaml"), []byte("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal-a}\nnodes: [{name: n1}, {name: n2}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	caisson("keys", "generate", "keys/operator")
	caisson("publish", "site.yaml", "--to", "oci:out", "--key", "keys/operator.key")
	for _, role := range []string{"reader", "drain"} {
		if err := os.WriteFile(filepath.Join(dir, role), []byte(caisson("fleet", "token", role, "--role", role, "--tokens", "tokens")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	serve := exec.Command(program, "fleet", "serve", "--from", "oci:out", "--site", "site.yaml", "--listen", "127.0.0.1:0", "--db", "sqlite:fleet.db", "--tokens", "tokens", "--slot", "default=1", "--drain", "default", "--cache", "cache")
	serve.Dir = dir
	serve.Env = append(os.Environ(), "HOME="+dir)
	said, err := serve.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	serve.Stdout = serve.Stderr
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = serve.Process.Kill() // its database is the test's
		_ = serve.Wait()         // it was killed
	})
	address := ""
	for lines := bufio.NewScanner(said); address == "" && lines.Scan(); {
		address = regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+`).FindString(lines.Text())
	}
	go func() { _, _ = bufio.NewReader(said).WriteTo(os.Stderr) }() // until it ends
	as := func(role string) *Client {
		c, err := New(address, filepath.Join(dir, role), nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, role := range []string{"reader", "drain"} {
		nodes, err := as(role).Nodes(ctx)
		if err != nil || len(nodes) != 2 || nodes[0].Name != "n1" || nodes[0].Condition != view.Never || nodes[0].Published != 1 {
			t.Errorf("nodes for %s: %+v, %v", role, nodes, err)
		}
		if slots, err := as(role).Slots(ctx); err != nil || len(slots) != 0 {
			t.Errorf("slots for %s: %+v, %v", role, slots, err)
		}
	}
	slot := Slot{Group: "default", Node: "n1"}
	if err := as("reader").Drained(ctx, slot, "nothing"); err == nil || !strings.Contains(err.Error(), "role drain") {
		t.Errorf("a reader says that a node is drained: %v", err)
	}
	if err := as("drain").Drained(ctx, slot, "nothing"); err == nil || !strings.Contains(err.Error(), "n1 holds no slot of default") {
		t.Errorf("a node is drained that holds no slot: %v", err)
	}
	changes := as("reader").Changes(ctx, time.Second)
	<-changes // it has begun to listen
	caisson("publish", "site.yaml", "--to", "oci:out", "--key", "keys/operator.key", "--all")
	select {
	case <-changes:
	case <-ctx.Done():
		t.Error("nobody told of a publish")
	}
}

// TestAddresses: a token goes by TLS alone.
func TestAddresses(t *testing.T) {
	for address, ok := range map[string]bool{"https://fleet.example.org": true, "http://127.0.0.1:8090": true, "http://fleet.example.org": false, "fleet.example.org": false, "ftp://x": false} {
		if _, err := New(address, "token", nil); (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestStolenServiceSaysTooMuch: what is read of a service has bounds of our own: pages without an
// end, rows without an end, bytes without an end; and what it says beside a status is read by
// nobody.
func TestStolenServiceSaysTooMuch(t *testing.T) {
	var pages int
	var answer func(w http.ResponseWriter)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		pages++
		answer(w)
	}))
	t.Cleanup(server.Close)
	c, err := New(server.URL, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(head, row string, n int, tail string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, head+strings.TrimSuffix(strings.Repeat(row+",", n), ",")+tail) // the client stops
		}
	}
	nodes := func() error { _, err := c.Nodes(t.Context()); return err }
	slots := func() error { _, err := c.Slots(t.Context()); return err }
	operations := func() error { _, err := c.Operations(t.Context(), "n1"); return err }
	for _, test := range []struct {
		name   string
		answer func(w http.ResponseWriter)
		ask    func() error
		want   string
		pages  int // at most
	}{
		{"pages without an end", write(`{"all": 2000000000, "nodes": [`, "{}", page, "]}"), nodes, "more than 100000 nodes", MaxNodes/page + 1},
		{"large pages without an end", write(`{"all": 2000000000, "nodes": [`, `{"why": "`+strings.Repeat("x", 3000)+`"}`, page, "]}"), nodes, "64 MiB", 25},
		{"a row a page", write(`{"all": 2000000000, "nodes": [`, "{}", 1, "]}"), nodes, "more than 101 pages", MaxPages},
		{"a page with too many rows", write(`{"all": 1, "nodes": [`, "{}", MaxRows+1, "]}"), nodes, "more than 4096 rows", 1},
		{"a page with too many bytes", write(`{"all": 1, "nodes": [`, `{"why": "`+strings.Repeat("x", 1<<20)+`"}`, 5, "]}"), nodes, "too many bytes", 1},
		{"too many groups", write(`{"groups": [`, "{}", 1<<20, "]}"), slots, "more than 4096 rows", 1},
		{"too many slots", write(`{"groups": [`, `{"held": [{}, {}]}`, MaxRows, "]}"), slots, "more than 4096 slots", 1},
		{"too many operations", write(`{"report": {"operations": [`, "{}", 1<<20, "]}}"), operations, "more than 4096 rows", 1},
		{"a list that is not one", write(`{"groups": {`, "", 0, "}}"), slots, "it is not a list", 1},
		{"words beside a status", func(w http.ResponseWriter) { http.Error(w, "of the cluster's inside", http.StatusTeapot) }, nodes, "answers 418 I'm a teapot", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			pages, answer = 0, test.answer
			err := test.ask()
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "inside") || pages > test.pages {
				t.Errorf("%d pages, %v; want %q", pages, err, test.want)
			}
		})
	}
	answer = write(`{"groups": null, "nodes": [`, "", 0, `], "report": {}}`)
	for _, ask := range []func() error{nodes, slots, operations} {
		if err := ask(); err != nil {
			t.Errorf("nothing: %v", err)
		}
	}
}

// TestNodesAreListedWhole: a node that leaves between two pages moves another one past the second;
// what is listed then is not taken for the fleet.
func TestNodesAreListedWhole(t *testing.T) {
	all := 1500
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		from, _ := strconv.Atoi(req.URL.Query().Get("from")) // 0 where it is none
		list := []view.Line{}
		for i := from; i < min(all, from+page); i++ {
			list = append(list, view.Line{Name: fmt.Sprint("n", i)})
		}
		said := map[string]any{"nodes": list, "all": all}
		all-- // before who asks has read the page, and asks for the next
		if err := json.NewEncoder(w).Encode(said); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	c, err := New(server.URL, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if nodes, err := c.Nodes(t.Context()); err == nil || !strings.Contains(err.Error(), "left it, while") {
		t.Errorf("%d nodes, %v", len(nodes), err)
	}
}
