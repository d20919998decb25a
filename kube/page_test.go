// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/kube/drain"
	"github.com/caisson-os/caisson/kube/object"
	"github.com/caisson-os/caisson/kube/service"
	"github.com/caisson-os/caisson/kube/test/kubetest"
	"github.com/caisson-os/caisson/spec/site/calendar"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

var (
	yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")
	testName  = regexp.MustCompile(`\bTest[A-Z]\w+`)
)

// TestEachThiefHasATest: each row of docs/stolen.md names a test, and each that it names is there.
func TestEachThiefHasATest(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "stolen.md"))
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	err = filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, "_test.go") {
			var text []byte
			text, err = os.ReadFile(name)
			tests.Write(text) // never fails
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| ") && !strings.Contains(line, "held by") {
			cells := strings.Split(line, " | ")
			named := testName.FindAllString(cells[len(cells)-1], -1)
			if rows++; len(named) == 0 && !strings.Contains(line, "`test/attack/") {
				t.Errorf("no test holds: %s", line)
			}
			for _, name := range named {
				if !strings.Contains(tests.String(), "\nfunc "+name+"(t *testing.T)") {
					t.Errorf("there is no %s: %s", name, line)
				}
			}
		}
	}
	if rows < 30 {
		t.Errorf("%d rows", rows)
	}
}

// TestBoundsOfThePage: the numbers of docs/security.md are those of the constants, each in a row.
func TestBoundsOfThePage(t *testing.T) {
	want := map[string]int64{
		"service.MaxAnswer": service.MaxAnswer, "service.MaxRows": service.MaxRows, "service.MaxNodes": service.MaxNodes, "service.MaxBytes": service.MaxBytes, "service.MaxPages": service.MaxPages,
		"drain.Pause": int64(drain.Pause / time.Second), "drain.MaxAsked": drain.MaxAsked, "--drain-most": 1, "drain.Believed": int64(drain.Believed / time.Hour),
		"cluster.MaxValues": cluster.MaxValues, "cluster.MaxTogether": cluster.MaxTogether, "cluster.MaxItems": cluster.MaxItems, "calendar.MaxRules": calendar.MaxRules,
		"object.MaxQuestion": object.MaxQuestion, "object.MaxAsked": object.MaxAsked, "object.MaxConns": object.MaxConns,
		"server.maxVerifies": written(t, "server.go", "maxVerifies"), "server.maxStreams": written(t, "api.go", "maxStreams"), "httpserver.Share": httpserver.Share,
	}
	text, err := os.ReadFile(filepath.Join("..", "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, bounds, _ := strings.Cut(string(text), "\n| of whom |")
	bounds, _, _ = strings.Cut(bounds, "\n\n")
	if rows := strings.Count(bounds, "\n| "); rows != len(want) {
		t.Errorf("%d rows are for %d constants", rows, len(want))
	}
	got := map[string]int64{}
	for _, m := range boundRow.FindAllStringSubmatch(string(text), -1) {
		if got[m[2]], err = strconv.ParseInt(m[1], 10, 64); err != nil {
			t.Error(err)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("the page has %v\nthe constants are %v", got, want)
	}
	if written(t, "api.go", "maxStreams")/written(t, "api.go", "clientStreams") != httpserver.Share || httpserver.UsualConns/httpserver.UsualPerClient < httpserver.Share {
		t.Error("one address has more than its part")
	}
	main, err := os.ReadFile(filepath.Join("cmd", "caisson-kube", "main.go"))
	if err != nil || !strings.Contains(string(main), `"drain-most", 1, `) {
		t.Errorf("--drain-most is not 1 when absent: %v", err)
	}
}

// written is a constant of fleet/server, whose modules this one does not have.
func written(t *testing.T, file, name string) int64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "fleet", "server", file))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(name + `\s+= ([0-9]+)\n`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("%s has no %s", file, name)
	}
	n, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var boundRow = regexp.MustCompile(`(?m)^\|.*\| ([0-9]+) \| (\S+) \|$`)

// TestPageApplies: the documents of docs/kubernetes.md are taken as they stand.
func TestPageApplies(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "kubernetes.md"))
	if err != nil {
		t.Fatal(err)
	}
	c := kubetest.Start(t)
	c.Namespace(t, "metal-a")
	blocks := yamlBlock.FindAllStringSubmatch(string(text), -1)
	for _, b := range blocks {
		if strings.Contains(b[1], "attach.yaml") { // values of a chart: TestAttachPage renders it
			continue
		}
		if !strings.Contains(b[1], "kind:") { // a part of a Site
			if out, err := c.Kubectl(t, siteHead+b[1], "apply", "--server-side", "--dry-run=server", "--namespace", "metal-a", "-f", "-"); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			continue
		}
		if out, err := c.Kubectl(t, b[1], "apply", "--server-side", "--namespace", "metal-a", "-f", "-"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	if out, err := c.Kubectl(t, blocks[0][1], "diff", "--server-side", "--namespace", "metal-a", "-f", "-"); err != nil {
		t.Errorf("kubectl diff of what was applied: %v\n%s", err, out)
	}
	out, err := c.Kubectl(t, "", "get", "caisson", "--namespace", "metal-a", "-o", "name")
	if err != nil || strings.Count(out, "\n") != 5 {
		t.Errorf("%v\n%s", err, out)
	}
}
