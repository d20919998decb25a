// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/history"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/advisory"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// kept is a past of so many generations, the newest of which changes a kernel parameter.
type kept struct {
	generations int
	reading     bool
}

func (k kept) List(_ context.Context, node, key string) ([]history.Entry, error) {
	switch {
	case k.reading:
		return nil, history.ErrReading
	case key != "" && node == "":
		return nil, cli.Usage("name the node, too", "since when a setting holds is asked of one node")
	}
	list := []history.Entry{}
	for i := k.generations; i > 0; i-- {
		e := history.Entry{Generation: published.Generation{Number: uint64(i)}, Verb: "publish", Author: "eve <b>", Reason: "a disk", Commit: strings.Repeat("c", 40) + "+", At: time.Unix(1_790_000_000, 0),
			Published: 2, Nodes: 60, Keys: []history.Key{{ID: strings.Repeat("k", 44)}, {ID: "x", Name: "operator"}}, Changes: []plan.Change{}}
		switch i {
		case 2:
			e.Mark = "signed by a key that was revoked later"
		case 1:
			e.Refused = "fleet:gen-0-1: signature"
		}
		list = append(list, e)
	}
	return list, nil
}

func (k kept) Between(_ context.Context, from, to, node string) (*history.Difference, error) {
	switch {
	case k.reading:
		return nil, history.ErrReading
	case to == "99":
		return nil, cli.WithHint(fmt.Errorf("generation 99 is not kept"), "caisson history lists them")
	case from == "" && strings.HasSuffix(to, "1"):
		return nil, nil
	}
	c := plan.Change{Change: spec.Change{Item: "sysctl", Key: "vm.swappiness", From: "10", To: "<b>20"}, Class: spec.ClassLive}
	var marks []string
	if from == "2" {
		marks = []string{"generation 0-2: signed by a key that was revoked later"}
	}
	return &history.Difference{Marks: marks, From: "0-3", To: "0-4", Nodes: 2, Kinds: []history.Kind{{Name: "sysctl", Changes: 2}}, Groups: []history.Group{{Class: spec.ClassLive, Why: "sysctl", Names: []string{"n1", "n2"}, Nodes: 2, Changes: []plan.Change{c}}}}, nil
}

func (k kept) Beside(_ context.Context, node, other string) (*history.Difference, error) {
	closes := &advisory.Change{Closed: []advisory.Advisory{{ID: "CVE-2026-0001", Source: "openssl", From: "3.5.0-1", To: "3.5.1-1", Urgency: "high"}},
		Opened: []advisory.Advisory{{ID: "CVE-2026-0002", Source: "<b>zlib", To: "1.3", Urgency: "low"}}, Open: make([]advisory.Advisory, 12)}
	layers := []plan.LayerPlan{{Variant: "gpu", Nodes: 1, Advisories: []*advisory.Change{closes, {Why: "the layer before cannot be read"}, {}}}}
	return &history.Difference{From: other, To: node, Kinds: []history.Kind{}, Groups: []history.Group{}, Layers: layers}, nil
}

// TestGenerations: the list has who, when, why and what, is turned a page at a time, and what was
// written by others is text; each range of generations and each two nodes have an address.
func TestGenerations(t *testing.T) {
	s := newSite(t, rowsOf("n1", "n2"), false)
	want := func(path string, status int, words ...string) {
		t.Helper()
		code, text := s.ask("GET", path, nil)
		if code != status || strings.Contains(text, "eve <b>") || strings.Contains(text, "<b>20") && !strings.HasPrefix(path, "/v1/") {
			t.Errorf("%s: %d\n%s", path, code, text)
		}
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("%s: no %s in\n%s", path, w, text)
			}
		}
	}
	want("/generations", 200, "does not read earlier generations")
	want("/v1/generations", 400, "does not read earlier generations")
	s.server.o.Past = kept{generations: 45}
	want("/generations", 200, `<a href="/generations/0-45">0-45</a>`, "publish: sysctl 2", "eve &lt;b&gt;", "kkkkkkkkkkkk,operator</td>", "<code>cccccccccccc&#43;</code>", "2 of 60", `<a href="/generations?key=&amp;node=&amp;page=2" rel="next">`, "45 generations")
	want("/generations?page=2&node=n1", 200, `<a href="/generations/0-5?node=n1">`, "<b>signed by a key that was revoked later</b>", "not read: fleet:gen-0-1", `rel="prev"`)
	want("/generations?page=99", 200, "/generations/0-1\"")
	want("/generations?key=a/b", 400, "name the node, too")
	want("/generations/3..4", 200, "<title>3..4 ", `<h1>From generation <span class="at">0-3</span> to <span class="at">0-4</span></h1>`, "2 nodes changed: sysctl 2", "&lt;b&gt;20", "caisson diff registry.example/metal --site site.yaml 0-3 0-4</code>")
	want("/generations/4?node=n1", 200, "0-4</span> on n1</h1>", "0-3 0-4 --node n1</code>")
	want("/generations/2..4", 200, `<p class="notice" role="alert">generation 0-2: signed by a key that was revoked later</p>`, "2 nodes changed: sysctl 2")
	want("/generations/1", 200, "No generation before it is kept.")
	want("/generations/99", 400, "is not kept: caisson history lists them")
	want("/generations/between?"+url.Values{"from": {"3"}, "node": {"n1; x"}}.Encode(), 200, "0-3 0-4 --node &#39;n1; x&#39;</code>")
	want("/generations/between?node=n1&beside=n2", 200, "n1 beside n2</h1>", "Nothing differs.", "--node n2 --node n1</code>", "Advisories: layer gpu on 1 node</h2>",
		`<td class="name">CVE-2026-0001</td><td data-is="source">openssl</td><td data-is="before">3.5.0-1</td><td data-is="after">3.5.1-1</td><td data-is="urgency">high</td><td data-is="now">closed`,
		`&lt;b&gt;zlib</td><td data-is="before">none</td>`, `now">open`, "12 open afterwards", "Not known: the layer before cannot be read", "Nothing security relevant.")
	want("/generations/between?beside=n2", 400, "name both nodes")
	want("/v1/generations", 200, `"generation":45`)
	want("/v1/generations/3..4", 200, `"kinds":[{"name":"sysctl","changes":2}]`)
	want("/v1/generations/1", 400, "no generation before it is kept")
	s.server.o.Past = kept{reading: true}
	want("/generations", 200, "are being read")
	want("/generations/4", 200, "are being read")
	want("/v1/generations/4", http.StatusServiceUnavailable, `"kind":"reading"`)
}
