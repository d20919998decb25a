// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/spec/site"
)

// TestUnreadKey: the hint of a key that this user may not read is not that of one which is none.
func TestUnreadKey(t *testing.T) {
	for err, want := range map[error]string{
		fmt.Errorf("open keys/operator.pub: %w", fs.ErrPermission): "let this user read it",
		fmt.Errorf("keys/operator.pub: no PEM block"):              "as 'caisson keys generate' writes it",
	} {
		p := unread(nil, site.Operator, site.File{Name: "keys/operator.pub"}, true, err)
		if !strings.Contains(p.Hint, want) || p.Message != err.Error() {
			t.Errorf("%v: %+v", err, p)
		}
	}
	// So it is of the file of their versions; one of a later release is not to be put back.
	for err, want := range map[error]string{
		fmt.Errorf("open caisson.keys: %w", fs.ErrPermission): readable,
		refusal.New(refusal.Malformed, "caisson.keys: cut"):   "put back the last version of the file",
		refusal.New(refusal.NeedsAgent, "it needs more"):      "boot a layer whose agent knows it",
	} {
		if got := cli.HintOf(unreadVersions(err)); !strings.HasPrefix(got, want) {
			t.Errorf("%v: hint %q", err, got)
		}
	}
}
