// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/caisson-os/caisson/internal/require"
)

// TestLongRescue: root is let into a running node by a real sshd and on its console, by a
// statement of a rescue key, once; the end of its time and a reboot shut both.
func TestLongRescue(t *testing.T) {
	require.Long(t)
	f := fleet(t)
	if err := os.Remove(filepath.Join(f.Dir, "caisson.keys")); err != nil { // it is of the site that init made
		t.Fatal(err)
	}
	f.must(t, "keys", "generate", "keys/rescue")
	f.edit(t, "registry: oci:./out", "registry: oci:./out\ntrust: {keys: {root: keys/root.pub, operator: keys/operator.pub, rescue: keys/rescue.pub}}")
	f.must(t, "keys", "rotate", "site.yaml", "--root-key", "keys/root.key")
	f.publish(t)
	if err := f.Netboot(t.Context()); err != nil {
		t.Fatal(err)
	}
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
	becomes(func() bool { return status(t, s).Rescue.Open }) // the service asks every five minutes
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
	if !becomes(func() bool { return !status(t, s).Rescue.Open }) {
		t.Fatal("its time does not end")
	}
	shut("afterwards")
	if !becomes(func() bool {
		return strings.TrimSpace(run(t, s, "systemctl is-active caisson-rescue.service || true")) != "active"
	}) {
		t.Error("the console keeps its shell")
	}
	late, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	if out, err := in.Run(late, "id -u"); err == nil {
		t.Errorf("the session of before goes on: %s", out)
	}

	s = f.reboot(t, m, s)                                          // the statement is still in the registry
	becomes(func() bool { return status(t, s).Rescue.Wrong == 1 }) // it is looked at, and is for another code
	if st := status(t, s).Rescue; st.Wrong != 1 || st.Open || st.Code == "" || st.Code == code {
		t.Errorf("after a reboot: %+v", st)
	}
	shut("after a reboot")
}
