// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tell/say"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
	"github.com/caisson-os/caisson/test/require"
)

// recipient returns what the machine's status says, which makes its key.
func (m *machine) recipient() string {
	m.t.Helper()
	n := m.open()
	defer n.Close() // the test is over
	of, _ := n.session.Recipient()
	return of
}

// wants are a file and a script of a secret, and a file that names one.
func wants(out string) spec.Items {
	return spec.Items{
		Files: []spec.File{{Path: "/etc/app/conf", Content: "password-file=/run/caisson/secret/db\n"}, {Path: "/etc/app/db", Secret: "db", Mode: "0440"}},
		Exec: []spec.Exec{{Name: "join", Rerun: "once_successfully", SecretEnv: map[string]string{"TOKEN": "db"},
			Data: "#!/bin/sh\nprintf %s \"$TOKEN\" >>" + out + "; echo \"$TOKEN\"\n"}},
	}
}

func (m *machine) publishSecrets(generation uint64, items spec.Items, secrets ...spec.Secret) {
	m.t.Helper()
	o := spec.Overlay{Core: spec.Core{Layer: layerNamed("a")}, Items: items, Secrets: secrets}
	o.SetNeeds()
	m.Overlay(o, sign.Predicate{Generation: generation})
	m.confirm(fixture.Now())
}

func (m *machine) opened(name string) string {
	data, err := os.ReadFile(m.root + spec.SecretDir + "/" + name)
	if err != nil {
		return ""
	}
	return string(data)
}

// A secret is opened for a file and a script, changes with its value, and leaves with it.
func TestSecrets(t *testing.T) {
	require.Root(t)
	m := newMachine(t)
	out := filepath.Join(t.TempDir(), "out")
	m.publishSecrets(1, wants(out))
	m.boot()
	st := m.apply()
	if st.Health != spec.HealthOK || st.Recipient == "" || st.Recipient != m.recipient() {
		t.Fatalf("without a key: health %s (%s), recipient %q", st.Health, st.HealthDetail, st.Recipient)
	}
	cannot := map[string]string{}
	for _, d := range st.Drift {
		if d.Action == spec.ActionCannot {
			cannot[d.Item+" "+d.Key] = d.Reason
		}
	}
	for _, key := range []string{"files /etc/app/conf", "files /etc/app/db", "exec join"} {
		if cannot[key] != "no key" {
			t.Errorf("%s: %q, want no key: %+v", key, cannot[key], st.Drift)
		}
	}
	if left, err := os.ReadDir(m.root + "/etc/app"); err == nil {
		t.Errorf("there is %v", left)
	}

	to := st.Recipient
	m.publishSecrets(2, wants(out), fixture.Seal(t, "db", to, "hunter2\n"))
	if st = m.sync(); st.Generation != 2 || st.Health != spec.HealthOK || len(st.Drift) > 0 {
		t.Fatalf("with one: %+v", st)
	}
	link, err := os.Readlink(m.root + "/etc/app/db")
	if err != nil || !strings.HasPrefix(link, spec.SecretDir+"/.files/") {
		t.Fatalf("%q, %v", link, err)
	}
	info, err := os.Stat(m.root + link)
	if err != nil || info.Mode().Perm() != 0o440 {
		t.Errorf("%v, %v", info, err)
	}
	if data, err := os.ReadFile(m.root + link); string(data) != "hunter2\n" || m.opened("db") != "hunter2\n" {
		t.Errorf("it is %q, %v", data, err)
	}
	if data, err := os.ReadFile(out); string(data) != "hunter2" {
		t.Errorf("the script had %q, %v", data, err)
	}

	// Somebody changes the copy: it is drift like any other.
	if err := os.WriteFile(m.root+link, []byte("other"), 0o440); err != nil {
		t.Fatal(err)
	}
	if m.apply(); m.opened(strings.TrimPrefix(link, spec.SecretDir+"/")) != "hunter2\n" {
		t.Error("the copy stays changed")
	}

	// Another value is another script; the same one sealed again is one, too, of which the docs speak.
	m.publishSecrets(3, wants(out), fixture.Seal(t, "db", to, "hunter3"))
	if st = m.sync(); st.Generation != 3 || len(st.Drift) > 0 || m.opened("db") != "hunter3" || m.opened(strings.TrimPrefix(link, spec.SecretDir+"/")) != "hunter3" {
		t.Errorf("rotated: %q, %+v", m.opened("db"), st)
	}
	if data, _ := os.ReadFile(out); string(data) != "hunter2hunter3" {
		t.Errorf("the script had %q", data)
	}

	// A change that fails is taken back with the secrets of before.
	bad := wants(out)
	bad.Exec = append(bad.Exec, spec.Exec{Name: "later", Data: "#!/bin/sh\nexit 1\n", OnFailure: "rollback"})
	m.publishSecrets(4, bad, fixture.Seal(t, "db", to, "hunter4"))
	n := m.open()
	_, err = n.cycle.Sync(t.Context())
	if closed := n.Close(); err == nil || closed != nil {
		t.Fatal("a script that fails changes the node")
	}
	if m.opened("db") != "hunter3" || m.opened(strings.TrimPrefix(link, spec.SecretDir+"/")) != "hunter3" {
		t.Errorf("taken back, it is %q", m.opened("db"))
	}

	// Sealed to another machine: what is not open yet is refused, what is open stays.
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	m.publishSecrets(5, wants(out), fixture.Seal(t, "db", other.Recipient().String(), "hunter5"))
	n = m.open()
	_, err = n.cycle.Sync(t.Context())
	if closed := n.Close(); err == nil || !strings.Contains(err.Error(), other.Recipient().String()) || closed != nil {
		t.Errorf("sealed to another: %v, %v", err, closed)
	}
	if st = m.apply(); st.Generation != 3 || st.Health != spec.HealthDegraded || m.opened("db") != "hunter3" {
		t.Errorf("sealed to another: generation %d, %s %s, opened %q", st.Generation, st.Health, st.HealthDetail, m.opened("db"))
	}
	m.publishSecrets(6, wants(out)) // to nobody any more
	if st = m.sync(); st.Generation != 6 || st.Health != spec.HealthOK || m.opened("db") != "" {
		t.Errorf("sealed to nobody: generation %d, %s %s, opened %q", st.Generation, st.Health, st.HealthDetail, m.opened("db"))
	}
	if _, err := os.Lstat(m.root + "/etc/app/db"); !os.IsNotExist(err) {
		t.Errorf("its file stays: %v", err)
	}

	// Nothing that the node keeps has a value.
	for _, value := range []string{"hunter2", "hunter3", "hunter4", "hunter5"} {
		for _, where := range []string{m.root + paths.State, m.root + paths.Run} {
			err := filepath.WalkDir(where, func(name string, d os.DirEntry, err error) error {
				if err != nil || !d.Type().IsRegular() || strings.HasPrefix(name, m.root+spec.SecretDir) || filepath.Base(name) == "log" {
					return err
				}
				data, err := os.ReadFile(name)
				if bytes.Contains(data, []byte(value)) {
					t.Errorf("%s has %s", name, value)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestRotatedKey: the next key is reported, what is sealed to either is opened, and the one before
// is gone when nothing needs it that the node goes back to by itself.
func TestRotatedKey(t *testing.T) {
	require.Root(t)
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	first := m.recipient()
	items := spec.Items{Files: []spec.File{{Path: "/etc/app/db", Secret: "db"}}}
	m.publishSecrets(2, items, fixture.Seal(t, "db", first, "hunter2"))
	m.sync()
	rotate := func() string {
		t.Helper()
		n := m.open()
		defer n.Close() // what was made is on disk
		if err := n.RotateRecipient(); err != nil {
			t.Fatal(err)
		}
		of, _ := n.session.Recipient()
		return of
	}
	recipients := func() [2]string {
		t.Helper()
		n := m.open()
		defer n.Close() // only read
		now, before, err := n.Recipients()
		if err != nil {
			t.Fatal(err)
		}
		return [2]string{now, before}
	}
	next := rotate()
	if next == first || rotate() != next {
		t.Fatalf("%s, then %s", first, next)
	}
	st := m.apply()
	if spec.NewReport(st).Recipient != next || st.Health != spec.HealthOK || m.opened("db") != "hunter2" {
		t.Errorf("recipient %s, health %s, opened %q", st.Recipient, st.Health, m.opened("db"))
	}
	m.publishSecrets(3, items, fixture.Seal(t, "db", first, "hunter3")) // nobody has accepted the next one yet
	if m.sync(); m.opened("db") != "hunter3" || recipients() != [2]string{next, first} {
		t.Errorf("opened %q, %v", m.opened("db"), recipients())
	}

	m.publishSecrets(4, items, fixture.Seal(t, "db", next, "hunter4"))
	if st = m.sync(); st.Health != spec.HealthOK || m.opened("db") != "hunter4" {
		t.Errorf("health %s, opened %q", st.Health, m.opened("db"))
	}
	previous := func(change func(s *state.State)) {
		t.Helper()
		folder := state.View(m.root + paths.State)
		s, err := folder.Load()
		if err == nil {
			change(s)
			err = folder.Save(s)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	previous(func(s *state.State) { s.Previous = &s.Earlier[0] }) // as if the third were of the layer before
	if recipients() != [2]string{next, first} {
		t.Errorf("%v: it may go back", recipients())
	}
	previous(func(s *state.State) { s.Previous = nil })
	if recipients() != [2]string{next, ""} {
		t.Errorf("%v: nothing needs it", recipients())
	}
	if _, err := os.Stat(m.root + paths.State + "/" + paths.SecretsNext); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
	m.publishSecrets(5, items, fixture.Seal(t, "db", first, "hunter5"))
	n := m.open()
	_, err := n.cycle.Sync(t.Context())
	if closed := n.Close(); err == nil || closed != nil || m.opened("db") != "hunter4" {
		t.Errorf("with the key that is removed it opens %q: %v", m.opened("db"), err)
	}
}

// ways lists what can happen to a file with a key.
var ways = map[string]func(t *testing.T, name string){
	"lost":           func(t *testing.T, name string) {},
	"empty":          func(t *testing.T, name string) { write(t, name, "", 0o600) },
	"cut":            func(t *testing.T, name string) { write(t, name, "AGE-SECRET-KEY-1QYQSZQGP", 0o600) },
	"other bytes":    func(t *testing.T, name string) { write(t, name, strings.Repeat("\x00\xff\n", 4000), 0o600) },
	"open to others": func(t *testing.T, name string) { write(t, name, newIdentity(t).String(), 0o644) },
	"a directory": func(t *testing.T, name string) {
		if err := os.MkdirAll(filepath.Join(name, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	},
	"a link": func(t *testing.T, name string) {
		if err := os.Symlink("/dev/zero", name); err != nil {
			t.Fatal(err)
		}
	},
	"another node's": func(t *testing.T, name string) { write(t, name, newIdentity(t).String(), 0o600) },
}

func write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func newIdentity(t *testing.T) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestLostKeyOfSecrets: a node that cannot open what was sealed to it says so, by its health and
// with the command that mends it, and has a key again to which that can be sealed; while it had
// nothing sealed to it, it is well.
func TestLostKeyOfSecrets(t *testing.T) {
	require.Root(t)
	items := spec.Items{Files: []spec.File{{Path: "/etc/app/db", Secret: "db"}}}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			damage := func() {
				t.Helper()
				file := m.root + paths.State + "/" + paths.SecretsKey
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
				way(t, file)
			}
			m.publishSecrets(1, items)
			m.boot()
			m.apply()
			damage()
			if st := m.apply(); st.Health != spec.HealthOK || st.Recipient == "" {
				t.Errorf("nobody has accepted its key: %s %s, recipient %q", st.Health, st.HealthDetail, st.Recipient)
			}
			first := m.recipient()
			m.publishSecrets(2, items, fixture.Seal(t, "db", first, "hunter2"))
			if st := m.sync(); st.Health != spec.HealthOK || m.opened("db") != "hunter2" {
				t.Fatalf("%s %s", st.Health, st.HealthDetail)
			}

			damage()
			st := m.apply()
			now := m.recipient()
			if st.Health != spec.HealthDegraded || !strings.Contains(st.HealthDetail, first) || st.Recipient != now || now == first || now == "" {
				t.Errorf("%s %q, recipient %s, was %s", st.Health, st.HealthDetail, st.Recipient, first)
			}
			if r := spec.NewReport(st); r.Axes.Health.State != string(spec.HealthDegraded) || r.Axes.Health.Detail == "" || r.Recipient != now {
				t.Errorf("it reports %+v", r.Axes.Health)
			}
			do := ""
			for _, f := range say.Why(st, &record.Boot{}, nil, nil).Findings {
				do += f.Do
			}
			if want := "caisson secrets accept SITE superhost --recipient " + now + " --replace"; !strings.Contains(do, want) {
				t.Errorf("why says %q, want %q", do, want)
			}
			aside, _ := filepath.Glob(m.root + paths.State + "/" + paths.SecretsKey + ".damaged*")
			if want := map[bool]int{true: 0, false: 2}[name == "lost" || name == "another node's"]; len(aside) != want {
				t.Errorf("set aside: %q, want %d", aside, want)
			}
			m.publish(3, layerNamed("a"), "10") // what needs none of them is followed
			if st := m.sync(); st.Generation != 3 || st.Health != spec.HealthOK {
				t.Errorf("generation %d, %s %s", st.Generation, st.Health, st.HealthDetail)
			}
			m.publishSecrets(4, items, fixture.Seal(t, "db", now, "hunter4"))
			if st := m.sync(); st.Health != spec.HealthOK || m.opened("db") != "hunter4" {
				t.Errorf("accepted again: %s %s, %q", st.Health, st.HealthDetail, m.opened("db"))
			}
		})
	}
}

// TestASettingFollowsWithoutAKey: what cannot be opened keeps nothing else from being followed
// that it is not new in.
func TestASettingFollowsWithoutAKey(t *testing.T) {
	require.Root(t)
	m := newMachine(t)
	db := spec.Items{Files: []spec.File{{Path: "/etc/app/db", Secret: "db"}}}
	m.publishSecrets(1, spec.Items{})
	m.boot()
	m.apply()
	sealed := fixture.Seal(t, "db", m.recipient(), "hunter2")
	m.publishSecrets(2, db, sealed)
	m.sync()
	if err := os.Remove(m.root + paths.State + "/" + paths.SecretsKey); err != nil {
		t.Fatal(err)
	}
	m.apply()
	db.Files = append(db.Files, spec.File{Path: "/etc/app/more", Content: "x"})
	m.publishSecrets(3, db, sealed)
	st := m.sync()
	if _, err := os.Stat(m.root + "/etc/app/more"); err != nil || st.Generation != 3 || st.Health != spec.HealthDegraded {
		t.Errorf("generation %d, %s %s: %v", st.Generation, st.Health, st.HealthDetail, err)
	}
}

// A node whose state is in memory makes no key: nobody could open what is sealed to it.
func TestNoRecipientWithoutADisk(t *testing.T) {
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	n := m.open()
	n.session.Boot.Disk = ""
	if err := n.session.Owner.Note(func(*record.Live) {}); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(m.root + paths.State + "/identity"); err != nil {
		t.Fatal(err)
	}
	if st := m.apply(); st.Recipient != "" {
		t.Errorf("recipient %q", st.Recipient)
	}
	n = m.open()
	if err := n.RotateRecipient(); !errors.Is(err, session.ErrNoKey) {
		t.Errorf("rotated: %v", err)
	}
	n.Close() // nothing is made
	if left, _ := filepath.Glob(m.root + paths.State + "/identity/secrets*"); left != nil {
		t.Errorf("it made %q", left)
	}
}
