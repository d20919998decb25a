// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"fmt"
	"os"
)

// stamps say that /etc and /var are as new as /usr, or systemd would take every
// boot for the first one after an update and run all that waits for that.
func (n *Node) stamps() error {
	usr, err := os.Stat(n.path("/usr"))
	if err != nil {
		return err
	}
	at := usr.ModTime()
	text := fmt.Sprintf("# This file was created by caisson: the root is stacked again at each boot.\nTIMESTAMP_NSEC=%d\n", at.UnixNano())
	for _, name := range []string{"/etc/.updated", "/var/.updated"} {
		if err := n.write(name, []byte(text), 0o644); err != nil {
			return err
		}
		if err := os.Chtimes(n.path(name), at, at); err != nil {
			return err
		}
	}
	return nil
}
