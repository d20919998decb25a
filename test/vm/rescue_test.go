// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/test/require"
)

// withRescueKey gives a fleet a key of the role rescue.
func (f *Fleet) withRescueKey(t *testing.T) {
	t.Helper()
	f.must(t, "keys", "generate", "keys/rescue")
	f.begins(t, "root: keys/root.pub, operator: keys/operator.pub, rescue: keys/rescue.pub")
}

// shown is the code on the screen of a loader that boots nothing.
var shown = regexp.MustCompile(`code ([a-z0-9]{5}-[a-z0-9]{5}) of mac-52540000000b, for 'caisson rescue'`)

// TestLongRescueOfALoader: a loader that boots nothing shows a code, and gives who is at its
// console a shell for as long as a statement for that code says. When there is something to boot
// the shell ends, and the node comes up with another code.
func TestLongRescueOfALoader(t *testing.T) {
	require.Long(t)
	f := fleet(t, slices.Concat(leanSite, []string{"      - name: tree\n", "      - name: tree\n      - name: busybox-static\n"})...)
	f.withRescueKey(t)
	if err := f.Impersonate(t.Context(), "beta", "alpha"); err != nil {
		t.Fatal(err)
	}
	m := f.start(t, f.byHand(t, machine.Options{Name: "beta", MAC: "52:54:00:00:00:0b"}))
	waitFor(t, m, 0, "for 'caisson rescue'")
	said := shown.FindStringSubmatch(m.Console.String())
	if said == nil {
		t.Fatalf("the screen shows no code:\n%s", m.Console.Tail(30))
	}
	f.must(t, "rescue", "site.yaml", "beta", "--to", f.To(), "--code", said[1], "--for", "1h", "--console", "--reason", "no way up", "--key", "keys/rescue.key")
	from := m.Console.Len()
	waitFor(t, m, from, "a shell is on the console for")
	if err := m.Type("echo $((6 * 7))$(busybox id -u)"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, m, from, "\n420\n")
	from = m.Console.Len()
	f.publish(t, "--all")
	waitFor(t, m, from, "caisson: entering the layer")
	s := f.login(t, m)
	if st := status(t, s); st.Health != "ok" || !st.Rescue.Open || st.Rescue.Code == said[1] || st.Rescue.Code == "" {
		t.Errorf("%+v, rescue %+v", st, st.Rescue)
	}
}

// TestLongRescue: root is let into a running node by a real sshd and on its console, by a
// statement of a rescue key, once; the end of its time and a reboot shut both.
func TestLongRescue(t *testing.T) {
	require.Long(t)
	f := fleet(t)
	f.withRescueKey(t)
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.Dir, "id.pub"), ssh.MarshalAuthorizedKey(key.PublicKey()), 0o600); err != nil {
		t.Fatal(err)
	}
	m := f.boot(t, f.withDisk(t))
	s := f.login(t, m)
	shut := func(when string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		if refused, err := m.Refused(ctx, "root", key); err != nil || !refused {
			t.Errorf("%s root gets in: %v", when, err)
		}
	}
	shut("before")
	code := status(t, s).Rescue.Code
	if code == "" {
		t.Fatal("root is shown no code")
	}
	f.must(t, "rescue", "site.yaml", "alpha", "--to", f.To(), "--code", code, "--for", "3m", "--ssh-key", "id.pub", "--console", "--reason", "disk full", "--key", "keys/rescue.key")
	from := m.Console.Len()
	becomes(s.Console, func() bool { return status(t, s).Rescue.Open }) // the service asks every five minutes
	if st := status(t, s).Rescue; !st.Open || st.Trouble != "" || st.Code == code {
		t.Fatalf("nobody is let in: %+v", st)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	in, err := m.Login(ctx, "root", key)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close() // the test is over
	if who := run(t, in, "id -u"); strings.TrimSpace(who) != "0" {
		t.Errorf("who is let in is %q", who)
	}
	if out := run(t, s, "systemctl is-active caisson-rescue.service"); strings.TrimSpace(out) != "active" {
		t.Errorf("the shell on the console is %q", out)
	}
	if _, err := m.Console.Wait(ctx, from, "# "); err != nil {
		t.Errorf("no prompt of root on the console: %v\n%s", err, m.Console.Tail(20))
	}
	if out := run(t, s, "sudo journalctl -t caisson-agent -o cat -b || true"); !strings.Contains(out, "disk full") {
		t.Errorf("the journal does not say why: %s", out)
	}
	if !becomes(s.Console, func() bool { return !status(t, s).Rescue.Open }) {
		t.Fatal("its time does not end")
	}
	shut("afterwards")
	if !becomes(s.Console, func() bool {
		return strings.TrimSpace(run(t, s, "systemctl is-active caisson-rescue.service || true")) != "active"
	}) {
		t.Error("the console keeps its shell")
	}
	late, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	if out, err := in.Run(late, "id -u"); err == nil {
		t.Errorf("the session of before goes on: %s", out)
	}

	s = f.reboot(t, m, s)                                                     // the statement is still in the registry
	becomes(s.Console, func() bool { return status(t, s).Rescue.Wrong == 1 }) // it is looked at, and is for another code
	if st := status(t, s).Rescue; st.Wrong != 1 || st.Open || st.Code == "" || st.Code == code {
		t.Errorf("after a reboot: %+v", st)
	}
	shut("after a reboot")
}
