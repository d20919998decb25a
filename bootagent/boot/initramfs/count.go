// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"github.com/caisson-os/caisson/bootagent/boot/kernel/kexec"
	"github.com/caisson-os/caisson/bootagent/record/state"
)

// begin counts a boot that the service will prove, or nobody: before anything of
// it is entered, and once, also when that takes a kexec. A disk that cannot be
// written to does not stop the boot; then nothing ends it, since nothing would count
// how often. What a diskless node counts is gone with the boot: it has nothing better
// to run, and asks for something newer each time.
func (b *boot) begin() {
	s, err := b.folder.Load()
	if err == nil && b.heard && s.Retest(b.record.Generation) {
		err = b.folder.Save(s)
	}
	if err == nil && s.Staged != nil && s.Staged.Pair(b.record.Generation) {
		b.unproven = true
		if b.countedFor(s.Staged.Overlay) {
			return
		}
		s.Staged.Attempts++
		err = b.folder.Save(s)
	}
	if err != nil {
		b.unproven = false
		b.say("this boot is not counted: %v", err)
	}
}

// begun returns how many boots of a generation were begun before this one. Behind its
// kexec, this one is counted already.
func (b *boot) begun(g state.Generation) int {
	if b.countedFor(g.Overlay) {
		return g.Attempts - 1
	}
	return g.Attempts
}

// countedFor reports whether the loader before this kexec counted this boot for an
// overlay. One that entered the last good generation, because another had been begun
// too often, counted for none: that other one is not to be begun behind the kexec.
func (b *boot) countedFor(overlay string) bool {
	if !b.afterKexec() {
		return false
	}
	counted, said := kexec.CountedFor(b.words)
	return counted == overlay || !said // loaders before this one counted whatever they entered
}

// counted tells a loader started by kexec how often this generation was begun.
func (b *boot) counted() string {
	if !b.unproven {
		return kexec.Counted
	}
	return kexec.Counted + b.record.Generation.Overlay
}
