// SPDX-License-Identifier: Apache-2.0

package replace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/seal"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

const rows = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: metal}
include: [nodes.yaml]
nodes:
- {name: n2, match: {macs: ["52:54:00:00:00:02"]}} # the other
`

const included = `# the rack
nodes:
- {name: n1, labels: {rack: r1}, match: {macs: ["52:54:00:00:00:01"]}} # the first
`

// host opens files as a shell would.
type host struct{}

func (host) Open(name string) (fs.File, error) { return os.Open(name) }

// here is a site in the present directory.
func here(t *testing.T, nodes string) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := errors.Join(os.WriteFile("site.yaml", []byte(rows), 0o600), os.WriteFile("nodes.yaml", []byte(nodes), 0o640)); err != nil {
		t.Fatal(err)
	}
}

func plan(t *testing.T, node string, m Machine) (*Change, error) {
	t.Helper()
	s, r := site.Parse(host{}, "site.yaml")
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	m.Accepted.Node = node
	return Plan(host{}, []string{"site.yaml"}, s, node, m)
}

func by(macs ...string) Machine { return Machine{Match: spec.Match{MACs: macs}} }

func with(m Machine, recipient string) Machine {
	m.Accepted = seal.Accepted{Recipient: recipient, Since: time.Unix(1, 0).UTC()}
	return m
}

func recipient(t *testing.T) string {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return key.Recipient().String()
}

func write(t *testing.T, node string, m Machine) *Change {
	t.Helper()
	c, err := plan(t, node, m)
	if err == nil {
		err = c.Save()
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func accepted(t *testing.T, node string) string {
	t.Helper()
	r, err := seal.ReadRecipients(".")
	if err != nil {
		t.Fatal(err)
	}
	return r.Nodes[node].Recipient
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestReplace: the row in its own file and the recipient change, comments, links and modes stay; what is
// asked for again changes nothing.
func TestReplace(t *testing.T) {
	here(t, included)
	if err := errors.Join(os.Rename("nodes.yaml", "rack.yaml"), os.Symlink("rack.yaml", "nodes.yaml")); err != nil {
		t.Fatal(err)
	}
	old, new := recipient(t), recipient(t)
	write(t, "n1", with(Machine{}, old))
	if read(t, "rack.yaml") != included || accepted(t, "n1") != old {
		t.Fatal("a recipient alone changes the row")
	}
	c := write(t, "n1", by("52:54:00:00:00:11"))
	if c.Recipient != Forgotten || accepted(t, "n1") != "" || c.Row != "nodes.yaml:3:10" {
		t.Errorf("%+v", c)
	}
	if got, want := read(t, "rack.yaml"), strings.Replace(included, ":01", ":11", 1); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	info, err := os.Lstat("nodes.yaml")
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v", err)
	}
	if info, err := os.Stat("rack.yaml"); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the mode is another one: %v", err)
	}
	if c := write(t, "n1", with(by("52:54:00:00:00:11"), new)); c.Recipient != Accepted || accepted(t, "n1") != new {
		t.Errorf("%+v", c)
	}
	if c := write(t, "n1", with(by("52:54:00:00:00:11"), new)); c.Changed || c.Recipient != Kept {
		t.Errorf("again: %+v", c)
	}
	if c := write(t, "n1", by("52:54:00:00:00:11")); c.Changed || accepted(t, "n1") != new {
		t.Errorf("the machine that is there loses its recipient: %+v", c)
	}
	moved := by("52:54:00:00:00:12")
	moved.SameDisk = true
	if c := write(t, "n1", moved); c.Recipient != Kept || accepted(t, "n1") != new {
		t.Errorf("with its disk: %+v", c)
	}
}

// TestCutAnywhere: the recipient ends before the row changes, and the same call goes on.
func TestCutAnywhere(t *testing.T) {
	here(t, included)
	write(t, "n1", with(Machine{}, recipient(t)))
	c, err := plan(t, "n1", by("52:54:00:00:00:11"))
	if err != nil {
		t.Fatal(err)
	}
	meanwhile := included + "- {name: n3}\n"
	if err := os.WriteFile("nodes.yaml", []byte(meanwhile), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := c.Save(); err == nil || !strings.Contains(err.Error(), "nodes.yaml has changed meanwhile") || cli.HintOf(err) != "run this again" {
		t.Fatal(err)
	}
	if accepted(t, "n1") != "" || read(t, "nodes.yaml") != meanwhile {
		t.Error("the old machine keeps its secrets, or somebody's edit is lost")
	}
	write(t, "n1", by("52:54:00:00:00:11"))
	if got, want := read(t, "nodes.yaml"), strings.Replace(meanwhile, ":01", ":11", 1); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestWrong: nothing is written, and the error says what to do.
func TestWrong(t *testing.T) {
	const anchored = "nodes:\n- {name: n1, match: &m {}}\n- {name: n3, match: *m}\n"
	const cluster = `{"kind": "List", "apiVersion": "v1", "items": [{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1"}}]}`
	for _, row := range []struct {
		name, nodes, node string
		m                 Machine
		want, hint        string
	}{
		{"no such node", included, "n11", by("52:54:00:00:00:11"), `no node "n11"`, "did you mean n1?"},
		{"another node's machine", included, "n1", by("52:54:00:00:00:02"), "the MAC address 52:54:00:00:00:02 is given already, at ", ""},
		{"no address", included, "n1", by("x"), `"x" is not the address of an interface`, "as in 52:54"},
		{"one that is shared", anchored, "n1", by("52:54:00:00:00:11"), "nodes.yaml:2:10: node n1", ""},
		{"a list of kubectl", cluster, "n1", by("52:54:00:00:00:11"), "its row is not in a file of YAML", `write it into the row yourself: match: {macs: ["52:54:00:00:00:11"]}`},
		{"no recipient", included, "n1", with(by("52:54:00:00:00:11"), "age1x"), `"age1x" is not a recipient`, "caisson-agent status"},
	} {
		t.Run(row.name, func(t *testing.T) {
			here(t, row.nodes)
			_, err := plan(t, row.node, row.m)
			if err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(cli.HintOf(err), row.hint) || cli.Code(err) != cli.ExitUsage {
				t.Errorf("%v, hint %q", err, cli.HintOf(err))
			}
			if read(t, "nodes.yaml") != row.nodes {
				t.Error("the file is changed")
			}
		})
	}
	here(t, included)
	has := recipient(t)
	write(t, "n2", with(Machine{}, has))
	if _, err := plan(t, "n1", with(by("52:54:00:00:00:11"), has)); err == nil || !strings.Contains(err.Error(), "node n2 has that recipient") {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join("keys", "secrets.key")); err == nil {
		t.Error("it makes a key")
	}
}

// TestResult: what is left to do follows from what is not known yet.
func TestResult(t *testing.T) {
	here(t, included)
	old := recipient(t)
	write(t, "n1", with(Machine{}, old))
	c, err := plan(t, "n1", by("52:54:00:00:00:11"))
	if err != nil {
		t.Fatal(err)
	}
	c.Still = append(c.Still, query.Still{What: "slot", Says: "of default", Command: "free it"})
	c.Follow([]string{"my site.yaml"}, by("52:54:00:00:00:11"))
	var text strings.Builder
	c.Write(&text)
	for _, want := range []string{"nodes.yaml:3:10  {macs: [\"52:54:00:00:00:01\"]}\n", "is now           {macs: [\"52:54:00:00:00:11\"]}\n", "recipient        forgotten\n", "slot: of default\n    free it\n", "ssh-keygen -R n1\n",
		"  caisson publish 'my site.yaml'\n  caisson fleet replace 'my site.yaml' n1 --report-key KEY\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if c, err = plan(t, "n1", Machine{}); err != nil {
		t.Fatal(err)
	}
	if c.Follow([]string{"site.yaml"}, Machine{}); c.Changed || c.Next[0] != "caisson publish site.yaml" {
		t.Errorf("it may not be published yet: %+v", c.Result)
	}
}
