// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// Nodes are found by what they have; a large site is left to the verb.
func TestHaving(t *testing.T) {
	text := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal}\nconf:\n  sysctl: {vm.swappiness: 10}\n" +
		"  overrides: {divingbell_sysctl: {hosts: [{name: n1, conf: {sysctl: {vm.swappiness: 20}}}]}}\nnodes:\n"
	read := func(nodes int) *Site {
		t.Helper()
		var b strings.Builder
		for i := range nodes {
			fmt.Fprintf(&b, "- {name: n%d}\n", i)
		}
		s, found := Parse(fstest.MapFS{"site.yaml": {Data: []byte(text + b.String())}}, "site.yaml")
		if err := found.Err(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := read(3)
	if names, err := s.Having([]string{"sysctl/vm.swappiness=10"}); err != nil || !slices.Equal(names, []string{"n0", "n2"}) {
		t.Errorf("%q, %v", names, err)
	}
	if _, err := s.Having([]string{"sysctl/vm.swappiness=30"}); err == nil || err.Error() != `no node has sysctl/vm.swappiness=30; there is: "10", "20"` {
		t.Errorf("a value that no node has: %v", err)
	}
	if _, err := read(MaxSearched + 1).Having([]string{"sysctl"}); err == nil || !strings.Contains(err.Error(), "more than 1000 nodes") {
		t.Errorf("a large site: %v", err)
	}
}
