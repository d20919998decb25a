// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"html"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/fleet/unknown"
	authored "github.com/caisson-os/caisson/spec/site"
)

// newRack returns machines, as they asked; the last is the first from another address.
func newRack(n int) (list []unknown.Machine) {
	at := time.Now().Add(-time.Hour)
	for i := range n {
		list = append(list, unknown.Machine{From: fmt.Sprintf("192.0.2.%d", i), MACs: []string{fmt.Sprintf("52:54:00:00:00:%02x", i)}, Names: []string{"<b>null"}, First: at, Last: at})
	}
	return append(list, unknown.Machine{From: "198.51.100.1", MACs: list[0].MACs, First: at, Last: at})
}

// TestUnknownMachines: fifty machines are copied at once, and what is copied is the nodes of a site.
func TestUnknownMachines(t *testing.T) {
	s := newSite(t, published("n1"), false)
	if _, text := s.ask("GET", "/unknown", nil); !strings.Contains(text, "does not know who asked in vain") {
		t.Errorf("without a list:\n%s", text)
	}
	var wrong error
	s.server.o.Unknown = func() ([]unknown.Machine, error) { return newRack(50), wrong }
	_, text := s.ask("GET", "/unknown", nil)
	parts := strings.Split(text, `data-copy="`)
	all, _, _ := strings.Cut(parts[len(parts)-1], `"`)
	site := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\nnodes:\n" + html.UnescapeString(all) + "\n"
	if read, r := authored.Parse(fstest.MapFS{"site.yaml": {Data: []byte(site)}}, "site.yaml"); r.Err() != nil || len(read.Nodes()) != 50 {
		t.Errorf("%v in\n%s", r.Err(), site)
	}
	if strings.Contains(text, "<b>null") || len(parts) != 52 {
		t.Errorf("%d rows to copy in\n%s", len(parts)-1, text)
	}
	wrong = errors.New("unknown machines: no <list>")
	if _, text := s.ask("GET", "/unknown", nil); !strings.Contains(text, "no &lt;list&gt;") {
		t.Errorf("with a list that cannot be read:\n%s", text)
	}
}
