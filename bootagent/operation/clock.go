// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/sense/window"
	"github.com/caisson-os/caisson/spec/timeservice"
)

// unsynchronised says why nobody has set the clock.
func (e *Engine) unsynchronised() string {
	const what = "the clock is not synchronised: "
	s, ok := timeservice.In(func(path string) bool {
		_, err := os.Lstat(filepath.Join(e.Root, path))
		return err == nil
	})
	switch {
	case !ok:
		return what + "this system has none of " + strings.Join(timeservice.Packages(), ", ")
	case e.Units == nil:
		return what + s.Unit + " cannot be asked without systemd"
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	state, since, err := e.Units.State(ctx, s.Unit)
	switch {
	case err != nil:
		return what + err.Error()
	case state != "active":
		return what + s.Unit + " is not active"
	}
	servers := "its servers"
	if len(e.Servers) > 0 {
		servers = strings.Join(e.Servers, ", ")
	}
	return fmt.Sprintf("%sno time that %s accepts came from %s since it started, at %s", what, s.Unit, servers, window.Moment(since))
}
