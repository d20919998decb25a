// SPDX-License-Identifier: Apache-2.0

package perhost

import (
	_ "embed"
	"io/fs"
)

//go:embed cluster.sh
var clusterScript string

const clusterUnit = `[Unit]
Description=Make the cluster %I of this node, where it has none
RequiresMountsFor=/var/lib/%I

[Service]
Type=oneshot
ExecStart=/usr/lib/caisson/make-cluster %I
RuntimeDirectory=caisson-cluster-%i
PrivateTmp=yes
TimeoutStartSec=15min
`

// Baked is a file that a layer has in place of what is left out.
type Baked struct {
	Path, Text string
	Mode       fs.FileMode
}

// Bake lists those of a layer, where exists tells whether it has a path.
func Bake(exists func(path string) bool) (all []Baked) {
	for _, row := range Table {
		if row.Unit == "" || !exists("/usr/lib/systemd/system/"+row.Unit) {
			continue
		}
		if all == nil {
			all = []Baked{{"/usr/lib/caisson/make-cluster", clusterScript, 0o755}, {"/usr/lib/systemd/system/caisson-cluster@.service", clusterUnit, 0o644}}
		}
		before := "caisson-cluster@" + row.Cluster + ".service"
		all = append(all, Baked{"/usr/lib/systemd/system/" + row.Unit + ".d/10-caisson-cluster.conf",
			"[Unit]\nRequires=" + before + "\nAfter=" + before + "\n", 0o644})
	}
	return all
}
