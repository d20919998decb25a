// SPDX-License-Identifier: Apache-2.0

package item

import (
	"context"
	"time"
)

type scriptKey struct{}

// HearScripts has began called for each script that an item waits for under a context, with
// its timeout; what began returns is called when the script is over. Who bounds a run counts
// no time twice that way.
func HearScripts(ctx context.Context, began func(limit time.Duration) (ended func())) context.Context {
	return context.WithValue(ctx, scriptKey{}, began)
}

// BeginScript says that a script begins which is waited for, until ended is called.
func BeginScript(ctx context.Context, limit time.Duration) (ended func()) {
	if began, ok := ctx.Value(scriptKey{}).(func(time.Duration) func()); ok {
		return began(limit)
	}
	return func() {}
}
