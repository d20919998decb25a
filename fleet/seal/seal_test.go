// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/caisson-os/caisson/spec/site"
)

// place is a directory with a site of two nodes that need one secret each.
type place struct {
	*testing.T
	dir  string
	key  *age.X25519Identity // of the publisher
	node map[string]*age.X25519Identity
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{T: t, dir: t.TempDir(), node: map[string]*age.X25519Identity{}}
	p.key = p.identity()
	p.write("site.yaml", `
apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: two}
nodes: [{name: a}, {name: b}]
secrets: {db: {file: db.age}}
conf: {files: {/etc/db: {secret: db}}}
`)
	p.seal("first")
	p.accept("a")
	p.accept("b")
	return p
}

func (p *place) identity() *age.X25519Identity {
	p.Helper()
	key, err := age.GenerateX25519Identity()
	p.must(err)
	return key
}

func (p *place) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *place) write(name, text string) {
	p.Helper()
	p.must(os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o644))
}

// seal writes the file with the value.
func (p *place) seal(value string) {
	p.Helper()
	var out bytes.Buffer
	w, err := age.Encrypt(&out, p.key.Recipient())
	p.must(err)
	_, err = io.WriteString(w, value)
	p.must(err)
	p.must(w.Close())
	p.write("db.age", out.String())
}

// accept gives a node a new key.
func (p *place) accept(node string) {
	p.Helper()
	p.node[node] = p.identity()
	r, err := ReadRecipients(p.dir)
	p.must(err)
	r.Nodes[node] = Accepted{Node: node, Recipient: p.node[node].Recipient().String(), Since: time.Unix(1800000000, 0).UTC()}
	p.must(r.Write())
}

// open reads the site again, as the next publish does.
func (p *place) open() (*Sealer, *site.Site) {
	p.Helper()
	s, problems := site.Parse(os.DirFS("/"), strings.TrimPrefix(filepath.Join(p.dir, "site.yaml"), "/"))
	if s == nil {
		p.Fatalf("%+v", problems.Problems)
	}
	p.Chdir("/") // names in a site are relative to where it was read from
	x, err := Open(s)
	p.must(err)
	x.Must, x.Identities = true, &Identities{list: []age.Identity{p.key}}
	return x, s
}

// value opens what the site's overlay brings a node.
func (p *place) value(s *site.Site, node string) (sealed, value string) {
	p.Helper()
	o, err := s.Overlay(node, "")
	p.must(err)
	if len(o.Secrets) != 1 {
		return "", ""
	}
	raw, err := base64.StdEncoding.DecodeString(o.Secrets[0].Sealed)
	p.must(err)
	r, err := age.Decrypt(bytes.NewReader(raw), p.node[node])
	if err != nil {
		return o.Secrets[0].Sealed, "not this node's"
	}
	data, err := io.ReadAll(r)
	p.must(err)
	return o.Secrets[0].Sealed, string(data)
}

// A row is sealed again when its value or its recipient has changed, and the others stay.
func TestRowsStay(t *testing.T) {
	p := newPlace(t)
	both := []string{"a", "b"}
	x, s := p.open()
	p.must(x.Seal(t.Context(), both))
	if _, value := p.value(s, "a"); value != "first" {
		t.Fatalf("a has %q", value)
	}
	// Cut before the lock is written: the next time it is sealed otherwise, and that is all.
	x, s = p.open()
	if sealed, _ := p.value(s, "a"); sealed != "" {
		t.Error("what was not written is there")
	}
	p.must(x.Seal(t.Context(), both))
	p.must(x.Write())
	a, _ := p.value(s, "a")
	b, _ := p.value(s, "b")

	// Cut between the lock and what is published of it: the same rows are taken, without a key.
	x, s = p.open()
	x.Identities = nil
	p.must(x.Seal(t.Context(), both))
	if sealed, _ := p.value(s, "a"); sealed != a {
		t.Error("the same value is sealed otherwise")
	}

	// A node with another key: its row alone. The one of before counts for nobody, also
	// before anything is sealed again.
	p.accept("b")
	x, s = p.open()
	if sealed, _ := p.value(s, "b"); sealed != "" {
		t.Error("a row for another recipient counts")
	}
	p.must(x.Seal(t.Context(), both))
	p.must(x.Write())
	if sealed, _ := p.value(s, "a"); sealed != a {
		t.Error("a node is sealed to again since another was replaced")
	}
	if sealed, value := p.value(s, "b"); sealed == b || value != "first" {
		t.Errorf("b has %q", value)
	}

	// Another value, for one of the nodes alone.
	p.seal("second")
	x, s = p.open()
	p.must(x.Seal(t.Context(), []string{"a"}))
	p.must(x.Write())
	if _, value := p.value(s, "a"); value != "second" {
		t.Errorf("a has %q", value)
	}
	if _, value := p.value(s, "b"); value != "first" {
		t.Errorf("b has %q", value)
	}

	// Nothing beside the site has a value.
	for _, name := range []string{lockName, RecipientsName, "keys/" + keyName} {
		data, err := os.ReadFile(filepath.Join(p.dir, name))
		if err != nil || bytes.Contains(data, []byte("first")) || bytes.Contains(data, []byte("second")) {
			t.Errorf("%s: %s, %v", name, data, err)
		}
	}
	if info, err := os.Stat(filepath.Join(p.dir, "keys", keyName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// Two that publish at once do not write over each other.
func TestTheLockOfAnotherStays(t *testing.T) {
	p := newPlace(t)
	x, _ := p.open()
	y, _ := p.open()
	p.must(x.Seal(t.Context(), []string{"a"}))
	p.must(y.Seal(t.Context(), []string{"b"}))
	p.must(x.Write())
	if err := y.Write(); err == nil || !strings.Contains(err.Error(), "has changed meanwhile") {
		t.Errorf("%v", err)
	}
}

func TestDamagedLocks(t *testing.T) {
	p := newPlace(t)
	_, s := p.open()
	for name, text := range map[string]string{
		lockName + " of a later release": `{"apiVersion":"caisson.dev/v1alpha1","kind":"SecretsLock","later":1,"secrets":[]}`,
		lockName + " of another kind":    `{"apiVersion":"caisson.dev/v1alpha1","kind":"ServicesLock","secrets":[]}`,
		lockName + " cut":                `{"apiVersion":"caisson.dev/v1alpha1","kind":"Secr`,
		RecipientsName + " not one":      `{"apiVersion":"caisson.dev/v1alpha1","kind":"RecipientsLock","recipients":[{"node":"a","recipient":"age1x"}]}`,
	} {
		file, _, _ := strings.Cut(name, " ")
		was, err := os.ReadFile(filepath.Join(p.dir, file))
		if err != nil && file == RecipientsName {
			t.Fatal(err)
		}
		p.write(file, text)
		if _, err := Open(s); err == nil {
			t.Errorf("%s is read", name)
		}
		p.write(file, string(was))
		if was == nil {
			p.must(os.Remove(filepath.Join(p.dir, file)))
		}
	}
}

// A program has an end, and so has what it prints; its failure is nobody's empty password.
func TestCommands(t *testing.T) {
	for what, argv := range map[string][]string{
		"fails": {"sh", "-c", "echo hunter2; exit 3"}, "is not there": {"no-such-program"}, "prints nothing": {"true"},
		"prints too much": {"sh", "-c", "head -c 70000 /dev/zero"}, "never ends": {"sleep", "1000"},
	} {
		limit := time.Minute
		if what == "never ends" {
			limit = 50 * time.Millisecond
		}
		value, err := run(t.Context(), argv, t.TempDir(), limit)
		if err == nil || value != nil && what != "prints too much" && what != "prints nothing" || err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %d bytes, %v", what, len(value), err)
		}
	}
	value, err := run(t.Context(), []string{"printf", "%s", "$(id) x"}, t.TempDir(), time.Minute)
	if err != nil || string(value) != "$(id) x" {
		t.Errorf("%q, %v: no shell is between", value, err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := run(over, []string{"true"}, t.TempDir(), time.Minute); err == nil {
		t.Error("a verb that was ended runs programs")
	}
}

// A password of an account that is not a hash would lock somebody out: it is said before it is
// sealed, without a word of it.
func TestPasswordsAreHashes(t *testing.T) {
	p := newPlace(t)
	p.write("site.yaml", `
apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: two}
nodes: [{name: a}, {name: b}]
layer: {base: {debian: {suite: trixie}}}
secrets: {db: {file: db.age}}
conf: {uamlite: {users: [{user_name: ann, user_crypt_passwd: {secret: db}}]}}
`)
	hash := "$6$salt$" + strings.Repeat("a", 86)
	for value, good := range map[string]bool{hash: true, hash + "\n": true, "*": true, "hunter2": false, "$hunter2$x": false, hash[:90]: false, hash + "\n\n": false} {
		p.seal(value)
		x, s := p.open()
		err := x.Seal(t.Context(), []string{"a"})
		if (err == nil) != good || err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), hash[:20])) {
			t.Errorf("%q: %v", value, err)
		}
		if _, sealed := p.value(s, "a"); good && sealed != value {
			t.Errorf("%q is sealed, want %q", sealed, value)
		}
	}
}

// What logs in to a registry has the form of that, and a token has none.
func TestLoginsAreLogins(t *testing.T) {
	p := newPlace(t)
	for key, want := range map[string]bool{"registry": false, "report": true} {
		p.write("site.yaml", `
apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: two}
nodes: [{name: a}, {name: b}]
secrets: {db: {file: db.age}}
machine: {agent: {report: {url: "https://fleet.example"}, credentials: {`+key+`: db}}}
`)
		for value, good := range map[string]bool{"hunter2": want, `{"auths":{}}`: want, `{"auths":{"r.example":{"auth":"dTpw"}}}`: true} {
			p.seal(value)
			x, s := p.open()
			err := x.Seal(t.Context(), []string{"a"})
			if (err == nil) != good || err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %q: %v", key, value, err)
			}
			if _, sealed := p.value(s, "a"); good && sealed != value {
				t.Errorf("%s: %q is sealed, want %q", key, sealed, value)
			}
		}
	}
}

// A machine that is thrown away has the values of its node, or such as are made up of each form,
// sealed to a key that was not there before. Nothing is written.
func TestApart(t *testing.T) {
	p := newPlace(t)
	p.write("site.yaml", `
apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: two}
nodes: [{name: a}, {name: b}]
layer: {base: {debian: {suite: trixie}}}
secrets: {db: {file: db.age}, ann: {command: [printf, "*"]}, pull: {command: [echo, '{"auths":{"r.example.org":{"auth":"YTpi"}}}']}}
conf:
  files: {/etc/db: {secret: db}}
  uamlite: {users: [{user_name: ann, user_crypt_passwd: {secret: ann}}]}
machine: {agent: {credentials: {registry: pull}}}
`)
	before, err := os.ReadDir(p.dir)
	p.must(err)
	for _, c := range []struct {
		name   string
		madeUp bool
		want   map[string]string
	}{
		{"its own", false, map[string]string{"db": "first", "ann": "*", "pull": `{"auths":{"r.example.org":{"auth":"YTpi"}}}` + "\n"}},
		{"made up", true, map[string]string{"db": "made-up-db", "ann": "!", "pull": `{"auths":{"registry.invalid":{"auth":"bWFkZTp1cA=="}}}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, problems := site.Parse(os.DirFS("/"), strings.TrimPrefix(filepath.Join(p.dir, "site.yaml"), "/"))
			if s == nil {
				t.Fatalf("%+v", problems.Problems)
			}
			t.Chdir("/")
			x, text, err := Apart(s, "a", c.madeUp)
			p.must(err)
			if !c.madeUp {
				x.Identities = &Identities{}
				p.must(x.Identities.Add("key", []byte(p.key.String())))
			}
			p.must(x.Seal(t.Context(), []string{"a"}))
			key, err := age.ParseX25519Identity(strings.TrimSpace(text))
			p.must(err)
			o, err := s.Overlay("a", "")
			p.must(err)
			list, err := x.of("a", s.Secrets().NeededBy(o))
			p.must(err)
			if len(list) != len(c.want) {
				t.Errorf("it has %d secrets, not %d", len(list), len(c.want))
			}
			for _, secret := range list {
				sealed, err := base64.StdEncoding.DecodeString(secret.Sealed)
				p.must(err)
				r, err := age.Decrypt(bytes.NewReader(sealed), key)
				p.must(err)
				value, err := io.ReadAll(r)
				p.must(err)
				if string(value) != c.want[secret.Name] || secret.To != key.Recipient().String() {
					t.Errorf("%s is %q for %s", secret.Name, value, secret.To)
				}
			}
		})
	}
	after, err := os.ReadDir(p.dir)
	p.must(err)
	if len(after) != len(before) {
		t.Errorf("beside the site are %v, before %v", after, before)
	}
}
