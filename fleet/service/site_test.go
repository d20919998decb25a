// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/content"
)

const followedSite = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: metal}
nodes: [{name: n1, labels: {rack: r1}}, {name: n2, labels: {rack: r2}}]
---
apiVersion: caisson.dev/v1alpha1
kind: NodeSet
metadata: {name: some}
spec: {exclude: {hosts: [n2]}}
`

const followedService = `---
apiVersion: caisson.dev/v1alpha1
kind: NodeService
metadata: {name: web}
spec:
  git: {url: "https://git.example/web.git", branch: main}
  unit: web.service
  directories: [{from: etc, to: /etc/web}]
`

// TestServedSiteFollowsItsFiles: what the fleet's service says of labels, sets and
// services is what the files have, and what they had before while they are wrong.
func TestServedSiteFollowsItsFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	times := 0
	write := func(name, text string) {
		t.Helper()
		times++
		at := time.Unix(int64(1e9+times), 0)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, at, at); err != nil { // two writes within a tick of the file system's clock
			t.Fatal(err)
		}
	}
	write("site.yaml", followedSite)
	s, found := Follow(os.DirFS("."), []string{"site.yaml"}, content.ReadLock)
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	is := func(step, r1, sets string, services int, trouble string, talk int) {
		t.Helper()
		said = nil
		s.again(say)
		s.again(say)
		groups := s.Now().Groups()
		nodes, err := groups.Find([]string{"rack=r1"}, "")
		if err != nil {
			t.Fatal(step, err)
		}
		if got := strings.Join(nodes, " "); got != r1 || strings.Join(groups.Sets(), " ") != sets || len(s.Now().Services().List) != services {
			t.Errorf("%s: rack=r1 is %q, sets are %q, %d services", step, got, groups.Sets(), len(s.Now().Services().List))
		}
		if err := s.Trouble(); (err == nil) != (trouble == "") || err != nil && !strings.Contains(err.Error(), trouble) {
			t.Errorf("%s: trouble is %v, want %q", step, err, trouble)
		}
		if len(said) != talk || trouble != "" && talk > 0 && !strings.Contains(said[0], trouble) {
			t.Errorf("%s: said %q", step, said)
		}
	}
	is("at the start", "n1", "some", 0, "", 0)
	moved := strings.ReplaceAll(followedSite, "rack: r2", "rack: r1")
	write("site.yaml", moved) // of the same length
	is("a label", "n1 n2", "some", 0, "", 1)
	moved = strings.ReplaceAll(moved, "some", "few") + followedService
	write("site.yaml", moved)
	is("a set and a service", "n1 n2", "few", 1, "", 1)
	wrong := followedSite + "spek: 1\n"
	write("site.yaml", wrong)
	is("an error", "n1 n2", "few", 1, "site.yaml:10:", 1)
	write("site.yaml", wrong)
	is("the same error", "n1 n2", "few", 1, "site.yaml:10:", 0)
	write("site.yaml", followedSite)
	is("mended", "n1", "some", 0, "", 1)
	write("site.yaml", strings.ReplaceAll(followedSite, "name: metal", "name: stone"))
	is("another fleet", "n1", "some", 0, `is for fleet "stone"`, 1)
	write("site.yaml", moved)
	is("this fleet", "n1 n2", "few", 1, "", 1)
	write("services.lock", "{")
	is("a file beside it", "n1 n2", "few", 1, "services.lock", 1)
	if _, err := s.ServicesLock(); err == nil {
		t.Error("a wrong lock is read")
	}
	if err := os.Remove("services.lock"); err != nil {
		t.Fatal(err)
	}
	is("without that file", "n1 n2", "few", 1, "", 1)
	write("services.lock", "[")
	is("with another one", "n1 n2", "few", 1, "services.lock", 1)
	if err := os.Remove("site.yaml"); err != nil {
		t.Fatal(err)
	}
	is("without the site", "n1 n2", "few", 1, "site.yaml", 1)
}
