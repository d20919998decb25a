// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/rescue"
	"github.com/caisson-os/caisson/bootagent/rescue/letin"
	"github.com/caisson-os/caisson/test/require"
)

// letIn lets root into a real sshd by what is in the book, and takes it away.
const letIn = ownHost + `
mkdir -p /run/sshd /run/caisson
for key in id next own host; do ssh-keygen -q -t ed25519 -N "" -C "" -f $key; done
install -D "$(command -v caisson-agent)" /etc/agent/caisson-agent # sshd starts what root alone may replace
echo "$SETTINGS" >settings
cat >sshd.conf <<-END
	Include /mnt/settings
	PermitRootLogin yes
	MaxAuthTries 1
	AuthorizedKeysFile /mnt/own.pub
	StrictModes no
	UsePAM no
	HostKey /mnt/host
	ListenAddress 127.0.0.1
	Port 2222
	PidFile none
END
book() { # for so many seconds from now, by these keys
	read up _ </proc/uptime
	until=$((${up%.*} + $1)); shift
	comma=; keys=$(for key; do printf '%s"%s"' "$comma" "$(cat $key.pub)"; comma=,; done)
	echo '{"boot":"'$(cat /proc/sys/kernel/random/boot_id)'","code":"x","open":{"reason":"r","signed":["k"],"sshKeys":['"$keys"'],"from":0,"until":'$until'000000000}}' >new
	mv new /run/caisson/rescue.json
}
enter() { key=$1; shift; ssh -i $key -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -p 2222 root@127.0.0.1 "$@"; }
book 600 id next
$(command -v sshd) -D -e -f sshd.conf 2>log &
soon enter id true

not enter own true
enter own -i next true # a client offers other keys first
not enter id -W 127.0.0.1:2222 </dev/null

# What is left behind, what runs, and a connection without a session end when a later statement
# names another key, whose session goes on until it is revoked.
enter id -T <<-END
	setsid sleep 7001 >/dev/null 2>&1 &
END
enter id -T <<-END &
	setsid sleep 7002 &
	sleep 7003
END
runs=$!
enter id -N &
connection=$!
enter next sleep 7004 &
goes=$!
soon sh -c "pgrep -fx 'sleep 7001' && pgrep -fx 'sleep 7002' && pgrep -fx 'sleep 7003' && pgrep -fx 'sleep 7004' && test \$(ls /run/caisson/letin | wc -l) = 4" >/dev/null
book 600 next
not wait $runs
not wait $connection
not pgrep -fx 'sleep 700[1-3]'
not enter id true
enter next true
pgrep -fx 'sleep 7004' >/dev/null
book 0 next
not wait $goes
not pgrep -fx 'sleep 700.'
not enter next true
test -z "$(ls /run/caisson/letin)"
`

// TestARescueEndsBySSH: while somebody is let in, no other key of root counts and nothing is
// forwarded. At the end sessions, what they started and connections end, without an agent.
func TestARescueEndsBySSH(t *testing.T) {
	require.Tool(t, "ssh", "sshd", "ssh-keygen", "pgrep")
	t.Parallel()
	root := t.TempDir()
	d := letin.Doors{Root: root, Program: "/etc/agent/caisson-agent"}
	if err := os.MkdirAll(root+"/etc/ssh/sshd_config.d", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := d.Follow(t.Context(), &rescue.Open{SSHKeys: []string{"a key"}, Until: time.Minute}, 0); err != nil {
		t.Fatal(err)
	}
	settings, err := os.ReadFile(root + "/etc/ssh/sshd_config.d/0-caisson-rescue.conf")
	if err != nil {
		t.Fatal(err)
	}
	inNamespaces(t, letIn, "SETTINGS="+string(settings))
}
