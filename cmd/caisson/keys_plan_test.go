// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/spec"
)

// TestNodesBehindTheKeys: a node is behind that knows an earlier version, and one that
// will know no more than its boot files at its next boot, or whose boot files begin no chain.
func TestNodesBehindTheKeys(t *testing.T) {
	list := query.List{Nodes: []view.Line{
		{Name: "disk", Keys: &spec.KeysKnown{Version: 3, BootFiles: 1}},
		{Name: "diskless", Keys: &spec.KeysKnown{Version: 3, BootFiles: 2, Forgets: true}},
		{Name: "older"},
		{Name: "rewritten", Keys: &spec.KeysKnown{Version: 3, BootFiles: 3, Forgets: true}},
		{Name: "silent"},
		{Name: "slow", Keys: &spec.KeysKnown{Version: 2, BootFiles: 2}},
		{Name: "unchained", Received: time.Unix(1, 0)},
	}, All: 7}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := json.NewEncoder(w).Encode(list); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	k := policy.KeysPlan{Version: 3, Older: []string{"older"}}
	if err := (&asking{Client: query.Client{At: s.URL}}).Hear(t.Context(), k.Hear); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, n := range k.Behind {
		got[n.Node] = n.String()
	}
	want := map[string]string{"diskless": "its boot files are of version 2, and it keeps nothing else: write them again", "slow": "it knows version 2",
		"unchained": "its boot files begin no chain of keys, and it follows none: write them again"}
	if !reflect.DeepEqual(got, want) || k.Silent != 1 {
		t.Errorf("%v, %d silent", got, k.Silent)
	}
	// A rotation hears of those that have reported.
	known, err := (&asking{Client: query.Client{At: s.URL}}).KeysKnown(t.Context())
	if _, said := known["unchained"]; err != nil || !said || len(known) != 1 || known["unchained"] != nil {
		t.Errorf("%v, %v", known, err)
	}
}
