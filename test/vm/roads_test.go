// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"slices"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/test/require"
)

// road is one way of a machine to its node. Where nobody can log in, it returns nil.
type road struct {
	name string
	walk func(*Fleet, *testing.T, machine.Options, ...string) *machine.Session
}

// roads are those with a medium, onto a disk and by HTTPS. What publishes a loader comes last.
var roads = []road{
	{"stick", (*Fleet).byStick}, {"program", (*Fleet).byProgram}, {"https", (*Fleet).byHTTPS}, {"airgap", (*Fleet).withoutNetwork},
	{"update", (*Fleet).update}, {"install", (*Fleet).installs}, {"offline", (*Fleet).installsOffline},
}

// TestLongSecureRoads walks the roads with firmware that starts what is signed. Its loader enters the
// kernel with the node's arguments by kexec.
func TestLongSecureRoads(t *testing.T) {
	require.Long(t)
	needs(t)
	f := example(t, programs(t), "../../examples/quickstart/site.yaml")
	f.edits(t, slices.Concat(calm, []string{"linux-image-cloud-amd64", "linux-image-amd64"}, bootsFromDisk[2:])...)
	f.walksAll(t, "--kernel-arg", "caisson.signed=1") // which no overlay names
}

// TestLongArm64Roads walks them with machines of arm64, under lockdown, too.
func TestLongArm64Roads(t *testing.T) {
	require.Long(t)
	f := arm64(t)
	f.edits(t, "linux-image-cloud-arm64", "linux-image-arm64", "      - name: tree\n", "      - name: tree\n      - name: e2fsprogs\n")
	f.walksAll(t, "--kernel-arg", "transparent_hugepage=never") // for under lockdown no kexec leads to the node's arguments
}

func (f *Fleet) walksAll(t *testing.T, more ...string) {
	require.Tool(t, "mdir", "mmd", "mcopy", "mkfs.vfat", "sfdisk", "sgdisk")
	f.bootKey(t)
	f.raise(t)
	for _, road := range roads {
		t.Run(road.name, func(t *testing.T) {
			if road.name == "offline" { // before, a machine with nothing but a stick would miss a state disk
				f.edits(t, bootsFromDisk[:2]...)
				f.build(t)
				f.publish(t)
			}
			o := f.medium(road.name, "52:54:00:00:00:0a")
			o.Secure = true
			if s := road.walk(f, t, o, more...); s != nil {
				look(t, s, Check{"lockdown", "sudo cat /sys/kernel/security/lockdown", "~[integrity]"})
			}
		})
	}
}
