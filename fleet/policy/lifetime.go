// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
)

// parseLifetime reads 30d and what time.ParseDuration reads.
func parseLifetime(text string) (time.Duration, error) {
	spelled := text
	if days, ok := strings.CutSuffix(text, "d"); ok {
		spelled = days + "h"
	}
	d, err := time.ParseDuration(spelled)
	if strings.HasSuffix(text, "d") {
		d *= 24
	}
	if err != nil || d < time.Minute || d > 10*366*24*time.Hour {
		return 0, cli.Usage("as in 30d or 12h, at most ten years", "%q is not a lifetime of signatures", text)
	}
	return d, nil
}
