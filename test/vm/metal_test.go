// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"os"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/test/require"
)

// The site that init writes for real machines, with the full kernel and the firmware
// that it names: built in release compression, published, booted by PXE on a machine
// with another card than the usual virtual one. Only what a user must add is added:
// an account, and a console to watch.
func TestLongMetal(t *testing.T) {
	require.Long(t)
	needs(t)
	f := &Fleet{Dir: t.TempDir(), Bin: programs(t), Show: t.Output()}
	f.must(t, "init", ".", "--registry", "oci:./out", "--node", "n1=52:54:00:00:00:0a")
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if f.Key, err = ssh.NewSignerFromKey(private); err != nil {
		t.Fatal(err)
	}
	key := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(f.Key.PublicKey())))
	f.edit(t, "args: [quiet]", "args: [quiet, console=ttyS0]")
	f.edit(t, "conf:\n", "conf:\n  uamlite: {users: [{user_name: admin, user_sudo: true, user_sshkeys: [\""+key+"\"]}]}\n")
	f.edit(t, "    packages: ", "    packages: # and a server to log in by\n      - {name: openssh-server}\n      #")
	f.must(t, "build", "site.yaml", "--key", "keys/release.key")
	f.publish(t)
	if err := f.Netboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if err := f.Serve(ctx); err != nil {
		t.Fatal(err)
	}
	m := f.boot(t, machine.Options{Name: "n1", MAC: "52:54:00:00:00:0a", Memory: 3072})
	s := f.login(t, m)
	if st := status(t, s); st.Health != "ok" || st.Source != "fetched" {
		t.Errorf("status of the node: %+v", st)
	}
	look(t, s, []Check{
		{"kernel", "uname -r", "~-amd64"},
		{"not the cloud kernel", "uname -r | grep -c cloud || true", "0"},
		{"firmware", "ls /usr/lib/firmware/bnx2x /usr/lib/firmware/rtl_nic | wc -l | grep -vx 0 >/dev/null && echo there", "there"},
		{"microcode", "ls -d /usr/lib/firmware/intel-ucode /usr/lib/firmware/amd-ucode | wc -l", "2"},
		{"no failed units", "systemctl --failed --no-legend --plain", ""},
	}...)
	memory, err := os.Stat(f.Dir + "/netboot/initrd")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("loader %.1f MB; %s", float64(memory.Size())/1e6, run(t, s, "free -m | sed -n 2p"))
}
