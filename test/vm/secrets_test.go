// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/leak"
	"github.com/caisson-os/caisson/test/require"
)

// givenSecrets are values, and where the programs that print them read them.
type givenSecrets struct {
	*Fleet
	dir    string
	values map[string]string // all that there ever were
	clear  string            // the account's password, of which its secret is the hash
}

// give makes another value of a secret.
func (g *givenSecrets) give(t *testing.T, name, value string) {
	t.Helper()
	g.values[fmt.Sprintf("%s %d", name, len(g.values))] = value
	if err := os.WriteFile(filepath.Join(g.dir, name), []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
}

// password makes another password of ann's.
func (g *givenSecrets) password(t *testing.T) {
	t.Helper()
	g.clear = leak.Value()[4:28]
	cmd := exec.CommandContext(t.Context(), "openssl", "passwd", "-6", "-stdin")
	cmd.Stdin = strings.NewReader(g.clear + "\n")
	hash, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	g.give(t, "ann", strings.TrimSpace(string(hash)))
}

// TestLongSecrets: a node with a state disk has secrets in a file, a script, a unit under the
// real systemd and an account, once its recipient is accepted: after a boot, where they are there
// before the first process, and live, when their values are others. Then no value is anywhere but
// in the memory that is theirs.
func TestLongSecrets(t *testing.T) {
	require.Long(t)
	require.Tool(t, "openssl")
	g := &givenSecrets{dir: t.TempDir(), values: map[string]string{}}
	for _, name := range []string{"db", "token", "cred"} {
		g.give(t, name, leak.Value())
	}
	g.password(t)
	command := func(name string) string { return name + ": {command: [cat, " + filepath.Join(g.dir, name) + "]}" }
	g.Fleet = fleet(t, append(leanSite,
		"machine:\n", "secrets: {"+command("db")+", "+command("token")+", "+command("cred")+", "+command("ann")+"}\nmachine:\n  agent: {metrics: {listen: \"127.0.0.1:9469\"}, report: {url: \"http://"+guestFleet+"\", interval: 10s}}\n",
		"    users:\n", "    users:\n      - {user_name: ann, user_crypt_passwd: {secret: ann}}\n",
		"  exec:\n", `  files:
    /etc/app/db: {secret: db, group: daemon, mode: "0440"}
  units:
    app.service:
      content: |
        [Unit]
        Description=an application with a credential
        [Service]
        Type=oneshot
        RemainAfterExit=yes
        User=nobody
        RuntimeDirectory=app
        LoadCredential=cred:/run/caisson/secret/cred
        ExecStart=/bin/sh -c 'sha256sum <$$CREDENTIALS_DIRECTORY/cred >/run/app/sum; sleep 1'
        [Install]
        WantedBy=multi-user.target
      state: enabled
      run: started
      restart: true
  exec:
    20-join:
      rerun_policy: once_successfully
      env: {TOKEN: {secret: token}}
      data: |
        #!/bin/sh
        printf %s "$TOKEN" | sha256sum >/run/joined
        sleep 2
`)...)
	page, err := g.Server(t.Context(), "fleet", "serve", "--from", g.To(), "--site", "site.yaml", "--host", "10.0.2.102", "--listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := g.byHand(t, g.withDisk(t))
	o.Forwards[guestFleet] = page
	m := g.start(t, o)
	s := g.login(t, m)
	st := status(t, s)
	if st.Health != spec.HealthOK || st.Recipient == "" {
		t.Fatalf("without a key: %+v", st)
	}
	for _, kind := range []string{"files", "exec", "units", "passwords"} {
		if !hasCannot(st, kind) {
			t.Errorf("%s is not without a key: %+v", kind, st.Drift)
		}
	}
	g.must(t, "secrets", "accept", "site.yaml", "alpha", "--recipient", st.Recipient)
	g.publish(t)
	s = g.reboot(t, m, s)
	g.holds(t, s, "after a boot")
	sample(t, s)

	g.give(t, "cred", leak.Value())
	g.give(t, "db", leak.Value())
	g.give(t, "token", leak.Value())
	g.password(t)
	g.publish(t)
	run(t, s, "sudo caisson-agent sync")
	g.holds(t, s, "with other values")
	if !becomes(s.Console, func() bool {
		said, _ := g.Caisson(t.Context(), "fleet", "status", "alpha", "--at", "http://"+page, "-o", "json") // its exit code is for people
		return strings.Contains(said, st.Recipient)
	}) {
		t.Error("the fleet's service knows nothing of the node")
	}
	g.seek(t, s, m)
	run(t, s, "sync")
	m.PowerCut()
	g.everywhere(t, st.Recipient, "fleet.db")
}

// TestLongARuleThatSudoRefuses: a boot asks visudo about a secret before it is a file, and what is
// refused does not lock anybody out. Another value is taken live.
func TestLongARuleThatSudoRefuses(t *testing.T) {
	require.Long(t)
	const rules = "/etc/sudoers.d/ops"
	g := &givenSecrets{dir: t.TempDir(), values: map[string]string{}}
	g.give(t, "rules", "ops ALL=(ALL) NOPASWD ALL\n")
	g.Fleet = fleet(t, append(leanSite, "machine:\n", "secrets: {rules: {command: [cat, "+filepath.Join(g.dir, "rules")+"]}}\nmachine:\n",
		"  exec:\n", "  files: {"+rules+": {secret: rules, mode: \"0440\"}}\n  exec:\n")...)
	m := g.start(t, g.byHand(t, g.withDisk(t)))
	s := g.login(t, m)
	g.must(t, "secrets", "accept", "site.yaml", "alpha", "--recipient", status(t, s).Recipient)
	g.publish(t)
	s = g.reboot(t, m, s)
	st := status(t, s)
	if st.Health != spec.HealthDegraded || !slices.ContainsFunc(st.Drift, func(d spec.Drift) bool {
		return d.Key == rules && d.Action == spec.ActionRefuse && strings.Contains(d.Reason, "/usr/sbin/visudo does not take it: what it says is not shown")
	}) {
		t.Errorf("after a boot: %+v", st)
	}
	run(t, s, "sudo test ! -e "+rules)
	g.give(t, "rules", "ops ALL=(ALL) NOPASSWD: ALL\n")
	g.publish(t)
	run(t, s, "sudo caisson-agent sync >&2")
	if st := g.judged(t, s); st.Health != spec.HealthOK {
		t.Errorf("with another value: %+v", st)
	}
	if got := run(t, s, "sudo cat "+rules); got != "ops ALL=(ALL) NOPASSWD: ALL" {
		t.Errorf("%q", got)
	}
}

// sample keeps the arguments of processes from now on, for seek.
func sample(t *testing.T, s *machine.Session) {
	t.Helper()
	run(t, s, `sudo systemd-run -q --unit sampler --property=Nice=10 sh -c 'while sleep 2; do cat /proc/[0-9]*/cmdline 2>/dev/null; done >/run/arguments'`)
}

func hasCannot(st spec.Status, kind string) bool {
	for _, d := range st.Drift {
		if d.Item == kind && d.Action == spec.ActionCannot && d.Reason == "no key" {
			return true
		}
	}
	return false
}

// holds wants each of them to have its secret.
func (g *givenSecrets) holds(t *testing.T, s *machine.Session, when string) {
	t.Helper()
	sum := func(name string) string {
		data, err := os.ReadFile(filepath.Join(g.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%x", sha256.Sum256(data))
	}
	if st := status(t, s); st.Health != spec.HealthOK || len(st.Drift) > 0 {
		t.Errorf("%s: %+v", when, st)
	}
	for what, c := range map[string][2]string{
		"the file":             {"sudo sha256sum /etc/app/db | cut -c1-64; sudo stat -Lc '%a %G' /etc/app/db", sum("db") + "\n440 daemon"},
		"the script":           {"sudo cut -c1-64 /run/joined", sum("token")},
		"the unit":             {"sudo cut -c1-64 /run/app/sum", sum("cred")},
		"its credential":       {"systemctl cat app.service | grep LoadCredential", "LoadCredential=cred:/run/caisson/secret/cred"},
		"the memory":           {"findmnt -no FSTYPE /run/caisson/secret", "ramfs"},
		"failed units":         {"systemctl --failed --no-legend --plain", ""},
		"what others may read": {"cat /run/caisson/secret/db 2>&1 | grep -o 'Permission denied'", "Permission denied"},
	} {
		if got := run(t, s, c[0]); got != c[1] {
			t.Errorf("%s, %s: %q, want %q", when, what, got, c[1])
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if got, err := s.Run(ctx, "printf '%s\\n' "+g.clear+" | su ann -c 'id -un'"); err != nil || got != "ann" {
		t.Errorf("%s, ann's password: %q, %v", when, got, err)
	}
	if got, err := s.Run(ctx, "echo another | su ann -c 'id -un'"); err == nil {
		t.Errorf("%s, another password is ann's: %q", when, got)
	}
}

// seek looks through what the running node says and keeps in memory. Where a password's hash
// has to be is /etc/shadow, which is in memory, too.
func (g *givenSecrets) seek(t *testing.T, s *machine.Session, m *machine.Machine) {
	t.Helper()
	for place, command := range map[string]string{
		"what the agent says": "sudo sh -c 'cd /; for verb in \"status -o json\" status \"why -o json\" why plan \"report -o json\" logs \"operation list\"; do caisson-agent $verb; done; true' 2>&1",
		"metrics":             "cat /run/caisson/metrics.prom",
		"the journal":         "sudo journalctl --no-pager -o export -b",
		"units":               "sudo systemctl show app.service caisson-agent.service 'caisson-exec-*' --no-pager",
		"arguments":           "sudo cat /run/arguments",
		"memory": `sudo sh -c 'cd /; for at in $(findmnt -rno TARGET -t tmpfs,devtmpfs); do case $at in /run/credentials/*) ;; *)
			tar c --one-file-system --ignore-failed-read --exclude shadow --exclude run/log/journal "$at" 2>/dev/null;; esac; done; true'`,
		"/etc but shadow": "sudo sh -c 'cd /etc; find . -xdev -type f ! -name shadow -exec cat {} +; true'",
	} {
		said := run(t, s, command)
		if len(said) < 200 { // what is looked through must be there
			t.Errorf("%s has %d bytes: %q", place, len(said), said)
		}
		g.none(t, place, []byte(said))
	}
	g.none(t, "the console", []byte(m.Console.String()))
}

func (g *givenSecrets) none(t *testing.T, place string, data []byte) {
	t.Helper()
	found, err := leak.Find(bytes.NewReader(data), g.values)
	if err != nil || found != nil {
		t.Errorf("%s has %q, %v", place, found, err)
	}
}

// everywhere looks through all that is left of the run: the node's disk, the registry, what the
// publisher keeps, the console, and what else is named. In the registry there must have been
// something that is sealed to the recipient.
func (g *givenSecrets) everywhere(t *testing.T, recipient string, also ...string) {
	t.Helper()
	seen, blobs, sealed := map[string]int64{}, 0, 0
	err := filepath.WalkDir(g.Dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close() // only read
		rel, err := filepath.Rel(g.Dir, name)
		if err != nil {
			return err
		}
		found, err := leak.Find(f, g.values)
		if found != nil {
			t.Errorf("%s has %q", rel, found)
		}
		info, infoErr := e.Info()
		if infoErr == nil {
			seen[rel] = info.Size()
		}
		if filepath.Dir(rel) == "out/blobs/sha256" && err == nil {
			blobs++
			if info.Size() < 1<<20 { // no layer
				text, err := os.ReadFile(name)
				if err != nil {
					return err
				}
				sealed += bytes.Count(text, []byte(recipient))
			}
		}
		return errors.Join(err, infoErr)
	})
	if err != nil {
		t.Fatal(err)
	}
	if blobs == 0 || sealed == 0 {
		t.Errorf("%d blobs of the registry were looked through, with %d secrets for %s", blobs, sealed, recipient)
	}
	for _, name := range append(also, "state.raw", "alpha.console", "secrets.lock", "recipients.lock", "keys/secrets.key") {
		if seen[name] == 0 {
			t.Errorf("there is no %s to look through, of %d files", name, len(seen))
		}
	}
}
