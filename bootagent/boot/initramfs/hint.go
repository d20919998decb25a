// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// Hint sends a hint to the fleet's service of a bootstrap, see [spec.Hint].
type Hint func(ctx context.Context, b spec.Bootstrap, way track.Way, body []byte) error

const (
	hintTries = 3                // so that a registry which starts with its nodes is not news
	hintTime  = 10 * time.Second // that one may take
)

// hint tells the fleet's service that this machine boots nothing, where there is one,
// and a network: unsigned, as a loader has no key, so nothing follows from it there. And
// nothing here: whether it was taken is said and no more.
func (b *boot) hint(ctx context.Context, why string) {
	if b.tell == nil || b.bootstrap.Hints == "" || b.lease == nil || !b.told.IsZero() && time.Since(b.told) < b.limits.hint {
		return
	}
	b.told = time.Now()
	ctx, cancel := context.WithTimeout(ctx, hintTime)
	defer cancel()
	if err := b.sendHint(ctx, why); err != nil {
		b.say("a hint to %s: %v", b.bootstrap.Hints, err)
	}
}

func (b *boot) sendHint(ctx context.Context, why string) error {
	node := b.id.Node
	if node == "" {
		node = strings.ToLower(b.lease.HostName)
	}
	way, s := track.Way{Silence: hintTime, Agent: track.UserAgent(b.version, b.id)}, &state.State{}
	if b.folder != nil {
		way.Credentials = b.folder.Path(paths.Credentials)
		if known, err := b.folder.Load(); err == nil { // one that cannot be read may be why: the clock does without
			s = known
			way.Own = b.ownSecrets(s)
		}
	}
	way.Clock = track.Clock(s, b.build)
	said := spec.NewHint(b.bootstrap.Fleet, node, spec.Match{MACs: b.id.MACs, UUIDs: b.id.UUIDs}, why)
	said.Code = b.letting.code
	body, err := spec.Encode(said)
	if err != nil {
		return fmt.Errorf("encode it: %w", err)
	}
	return b.tell(ctx, b.bootstrap, way, body)
}
