// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"cmp"
	"path/filepath"

	"github.com/caisson-os/caisson/bootagent/fetch/recipient"
	"github.com/caisson-os/caisson/bootagent/items/secrets"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/spec"
)

// ownSecrets opens the credentials that came to this node as secrets, and returns where they are.
// They are those of the newest overlay that the disk has, verified again: what a registry
// sends is not known yet. Where there are none, or one cannot be opened, the node goes on with
// what it was installed with.
func (b *boot) ownSecrets(s *state.State) string {
	if b.disk == "" {
		return ""
	}
	dir := cmp.Or(b.secretDir, spec.SecretDir)
	for _, g := range []*state.Generation{s.Staged, s.Ahead, s.Current} {
		if g == nil {
			continue
		}
		found, err := b.follower().Recall(g)
		if err != nil {
			continue // the loader says why when it boots it
		}
		own := track.OwnSecrets(&found.Overlay)
		if len(own) == 0 {
			return ""
		}
		key, err := recipient.Read(b.folder.Path())
		if key == nil || err != nil {
			return "" // the handover says why
		}
		item := secrets.New(found.Overlay.Secrets, secrets.Place{Dir: dir, Ram: b.secretDir == ""}, key.Open).WithOwn(own)
		if err := item.OpenOwn(); err != nil {
			b.say("credentials that came as secrets: %v", err)
			return ""
		}
		return filepath.Join(dir, secrets.Own)
	}
	return ""
}
