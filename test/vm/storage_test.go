// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"slices"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/test/require"
)

// TestLongStorage is examples/storage: a node that serves its second disk, which is prepared once,
// and another that mounts it, by NFS version 4 and by iSCSI, over a link of their own. What is
// written is on the disk when both have started again.
func TestLongStorage(t *testing.T) {
	require.Long(t)
	needs(t)
	f := fleetBy(t, programs(t), "../../examples/storage/site.yaml")
	at := machine.OwnAddress()
	link := func(mac, how string) []string {
		return []string{"-netdev", "socket,id=link," + how + "=" + at, "-device", "virtio-net-pci,netdev=link,romfile=,addr=0x16,mac=" + mac}
	}
	store := f.byHand(t, machine.Options{Name: "store", MAC: "52:54:00:00:40:01", Memory: 2048,
		Extra: slices.Concat(link("52:54:00:00:41:01", "listen"), disk(t, f.Dir, "data", "0x15", 512))})
	m := f.start(t, store)
	s := f.login(t, m)
	run(t, s, "sudo vgcreate data /dev/disk/by-id/virtio-data && "+
		"sudo lvcreate -n files -L 200M data && sudo mkfs.ext4 -q /dev/data/files && "+
		"sudo lvcreate -n blocks -L 100M data && sudo mkfs.ext4 -q -L blocks /dev/data/blocks && "+
		"sudo mount /dev/data/files /mnt && sudo chmod 1777 /mnt && sudo umount /mnt && sync")
	s = f.reboot(t, m, s)
	look(t, s,
		Check{"volume", "test $(findmnt -no SOURCE /srv/export) = $(readlink -f /dev/data/files) && findmnt -no FSTYPE /srv/export", "ext4"},
		Check{"export", "sudo exportfs -s | grep -o '^/srv/export .*fsid=0'", "~fsid=0"},
		Check{"target", "sudo targetcli ls /iscsi/iqn.2026-11.org.example:store/tpg1/acls", "~iqn.2026-11.org.example:client"},
		Check{"status", "sudo caisson-agent status", "~health      ok"})

	for _, kept := range []string{"0", "2"} {
		o := f.byHand(t, machine.Options{Name: "client", MAC: "52:54:00:00:40:02", Memory: 2048, Extra: link("52:54:00:00:41:02", "connect")})
		client := f.start(t, o)
		s := f.login(t, client)
		look(t, s,
			Check{"health", "until sudo caisson-agent status | grep '^health      ok'; do sleep 5; done", "~ok"},
			Check{"NFS", "findmnt -no FSTYPE,SOURCE /srv/files | tr -s ' '", "nfs4 192.0.2.1:/"},
			Check{"before remote-fs.target", "for u in srv-files.mount remote-fs.target; do " +
				"systemctl show -P ActiveEnterTimestampMonotonic $u; done | sort -nC && " +
				"systemctl show -P Result caisson-remote.service", "success"},
			Check{"iSCSI", "findmnt -no FSTYPE /srv/blocks; sudo iscsiadm -m session", "~iqn.2026-11.org.example:store"},
			Check{"what was written before", "ls /srv/files /srv/blocks | grep -c kept || true; touch /srv/files/kept && sudo touch /srv/blocks/kept && sync", kept})
		shutDown(t, client, s)
	}
}
