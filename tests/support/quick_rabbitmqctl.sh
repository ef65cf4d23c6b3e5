# bash quick_rabbitmqctl.sh FOLDER CONTAINER COMMAND...: docker exec, but `rabbitmqctl -q eval EXPRESSION` answers in some
# milliseconds. The tool itself takes a second, most of it CPU time, and docker exec a tenth of one.
#
# The first expression goes through erl_call, a C program that comes with Erlang. It leaves a listener in the broker, which
# evaluates the next ones, and its address in the folder. The listener is gone after a restart, and another container may have
# the address then: it answers only to the name of its own. Then all begins again.
folder=$1 container=$2
shift
[ "$2 $3 $4" = "rabbitmqctl -q eval" ] || exec docker exec "$@"
expression=${5//$'\n'/ }
ask='exec 3<>"/dev/tcp/$1/25999" && printf "%s %s\n" "$2" "$3" >&3 && cat <&3'
# Bounded as a whole: to connect to an address that a restart has left behind may take minutes.
if answer=$(timeout 5 bash -c "$ask" sh "$(<"$folder/$container")" "$container" "$expression"); then
    case $answer in *" $container") printf '%s' "${answer% "$container"}"; exit ;; esac
fi 2>/dev/null
answer=$(timeout 8 docker exec "$container" sh -c '
PATH=$PATH:/usr/lib/erlang/bin
hostname -i
command -v erl_call >/dev/null || exec rabbitmqctl -q eval "$2"
file=/tmp/answer.$$
erl_call -sname "rabbit@$(hostname)" -c "$(cat /var/lib/rabbitmq/.erlang.cookie)" -e >&2 <<END
spawn(fun() ->
    Answer = fun(Line) ->
        ["$1" = Name, Text] = string:split(string:trim(Line), " "),
        {ok, Tokens, _} = erl_scan:string(Text),
        {ok, Expressions} = erl_parse:parse_exprs(Tokens),
        {value, Value, _} = erl_eval:exprs(Expressions, []),
        [io_lib:format("~0p", [Value]), " ", Name]
    end,
    Serve = fun Serve(Listener) ->
        {ok, Socket} = gen_tcp:accept(Listener),
        catch begin
            {ok, Line} = gen_tcp:recv(Socket, 0, 10000),
            gen_tcp:send(Socket, Answer(Line))
        end,
        gen_tcp:close(Socket),
        Serve(Listener)
    end,
    case gen_tcp:listen(25999, [{active, false}, {packet, line}, {buffer, 1048576}]) of
        {ok, Listener} -> Serve(Listener);
        _ -> there_is_one
    end
end),
file:write_file("$file", io_lib:format("~0p", [begin ${2%.} end])).
END
cat "$file" && rm "$file"
' sh "$container" "$expression") || exec docker exec "$@" # the tool says what is wrong
printf '%s' "${answer%%$'\n'*}" >"$folder/$container"
printf '%s' "${answer#*$'\n'}"
