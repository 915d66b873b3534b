"""Result files of load-test tools, one module a tool: each says what it recognises and how its words map to ours."""
